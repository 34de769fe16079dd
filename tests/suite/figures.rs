//! The figures under `docs/figures`, and what the papers' figures must show on any table worth the name.

use crate::fixtures::{Folder, root, text};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};

/// Every file of a folder but PNGs, which are too large to keep beside what they are drawn from.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let kept = entries.filter(|path| path.extension().is_none_or(|ending| ending != "png"));
    kept.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
        .collect()
}

/// `cargo run -- figures --out docs/figures` draws them again.
#[test]
fn the_figures_of_docs_are_what_the_tables_say() {
    let folder = Folder::new();
    let said = folder.succeed("figures --out docs/figures");
    let (drawn, kept) = (files(&folder.path("docs/figures")), files(&root().join("docs/figures")));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&drawn), names(&kept), "{said}");
    for (name, bytes) in &drawn {
        assert!(kept[name] == *bytes, "docs/figures/{name} is not what the tables say");
        assert!(!name.ends_with(".svg") || !text(bytes).contains(" …<"), "words are missing in {name}");
    }
    let png = fs::File::open(folder.path("docs/figures/cliff.png")).unwrap();
    let info = png::Decoder::new(std::io::BufReader::new(png)).read_info().unwrap().info().size();
    assert_eq!(info.0, 1000, "twice the pixels of a column");
}

fn rows(name: &str) -> Vec<BTreeMap<String, Value>> {
    let json = fs::read_to_string(root().join(format!("docs/figures/{name}.json"))).unwrap();
    let figure: Value = serde_json::from_str(&json).unwrap();
    let columns =
        figure["columns"].as_array().unwrap().iter().map(|column| column.as_str().unwrap().to_owned());
    let columns: Vec<String> = columns.collect();
    let row = |row: &Value| columns.iter().cloned().zip(row.as_array().unwrap().iter().cloned()).collect();
    figure["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn the_figures_have_the_shape_of_the_papers() {
    let mib = |mib: u64| Value::from(mib << 20);
    let policies = rows("sizes");
    let time_ms = |limit: u64, policy: &str| -> f64 {
        let of = |row: &&BTreeMap<String, Value>| row["limit_bytes"] == mib(limit) && row["policy"] == policy;
        policies.iter().filter(of).map(|row| row["time_ms"].as_f64().unwrap()).sum()
    };
    let gain = |limit| time_ms(limit, "undivided") / time_ms(limit, "all");
    assert!(gain(64) >= 1.9, "AlexNet at 64 MiB gains {}", gain(64));
    assert!(gain(512) < 1.05 && gain(8) < 1.1, "at 512 MiB {}, at 8 MiB {}", gain(512), gain(8));

    let conv2 = rows("division");
    let conv2_ms = |policy: &str| -> f64 {
        let runs = conv2.iter().filter(|row| row["policy"] == policy);
        runs.map(|row| row["micro_batches"].as_f64().unwrap() * row["time_ms"].as_f64().unwrap()).sum()
    };
    assert!(conv2_ms("undivided") / conv2_ms("all") >= 2.0);

    for net in ["sharing", "resnet18-sharing", "resnet50-sharing"] {
        let totals = rows(net);
        let first = totals[0]["total_bytes"].clone();
        let ms = |way: &str| {
            let row = totals.iter().find(|row| row["total_bytes"] == first && row["way"] == way).unwrap();
            row["time_ms"].as_f64().unwrap()
        };
        assert!(ms("WR") > 1.1 * ms("WD") && ms("WD") > ms("one arena"), "{net}");
    }
    let division = rows("wd");
    let bytes = |layers: &[&str]| -> f64 {
        let of = |row: &&BTreeMap<String, Value>| {
            layers.iter().any(|l| row["kernel"].as_str().unwrap().starts_with(l))
        };
        division.iter().filter(of).map(|row| row["workspace_bytes"].as_f64().unwrap()).sum()
    };
    assert!(bytes(&["conv2", "conv3"]) > 0.9 * bytes(&["conv"]));
    // One layer saves most, in the caption of its figure and in the table of claims.
    let papers = text(&fs::read(root().join("docs/figures/papers.csv")).unwrap());
    for (net, figure) in [("AlexNet", "memory"), ("ResNet-18", "resnet18-memory")] {
        let is_saved = |line: &&str| line.starts_with(net) && line.contains("memory of a layer");
        let claim = papers.lines().find(is_saved).unwrap().rsplit(',').nth(3).unwrap();
        let json = fs::read_to_string(root().join(format!("docs/figures/{figure}.json"))).unwrap();
        let said = format!("takes {:.2} times less", claim.parse::<f64>().unwrap());
        assert!(json.contains(&said), "{net}: {said}");
    }
    let sets = rows("programme");
    let largest = sets.iter().map(|row| row["largest_desirable_set"].as_u64().unwrap()).max().unwrap();
    assert!((50..200).contains(&largest), "the papers' largest desirable set has 68 points, this {largest}");
    // Programmes of another size than the recorded ones have no time: `cargo bench --bench planner -- --ilps` takes it.
    assert!(sets.iter().all(|row| row["solving_ms"].is_number()), "{sets:?}");
    let measuring = |policy: &str| {
        let row = sets.iter().find(|row| row["net"] == "AlexNet" && row["policy"] == policy).unwrap();
        row["measuring_s"].as_f64().unwrap()
    };
    // All sizes up to 256 have 64 times as many samples as the powers of two.
    let ratio = measuring("all") / measuring("powerOfTwo");
    assert!((32.0..96.0).contains(&ratio), "all sizes take {ratio} times as long as powers of two");
}

#[test]
fn two_gpus_are_compared_by_the_nets_that_both_have() {
    let file = |name: &str| text(&fs::read(root().join("docs/figures").join(name)).unwrap());
    let papers = file("papers.csv");
    assert!(papers.starts_with("net,what,paper,paper_gpu,H200,H200/paper,H100,H100/paper\n"), "{papers}");
    let gain = papers.lines().find(|line| line.starts_with("AlexNet 256,convolutions at 64 MiB")).unwrap();
    let cells: Vec<&str> = gain.split(',').collect();
    assert!([4, 6].iter().all(|&gpu| cells[gpu].parse::<f64>().unwrap() > 1.9), "{gain}");
    let largest = papers.lines().find(|line| line.starts_with("DeepBench 256,")).unwrap();
    assert!(largest.ends_with(",,"), "the H100 has no list: {largest}");
    let page = file("README.md");
    for part in
        ["; not of ResNet-50 32 1.0", ", ResNet-50 32 on H100 1.0", "## H200 and H100", "H100 takes 1.0"]
    {
        assert!(page.contains(part), "{part}");
    }
    let folder = Folder::new();
    let said = folder.succeed("figures --device h100 --csv --out x");
    assert!(
        said.contains("What h100 has no measurements of is left out: ResNet-50 256, DenseNet-40 256"),
        "{said}"
    );
    assert!(!folder.path("x/kernels.csv").exists() && folder.path("x/cliff.csv").exists());
    folder.succeed("figures --device h100 --only sharing --out drawn");
    for (name, bytes) in files(&folder.path("drawn")) {
        assert!(!text(&bytes).contains(" …<"), "words are missing in {name}");
    }
}

#[test]
fn every_dot_of_the_cliff_has_a_name() {
    let svg = fs::read_to_string(root().join("docs/figures/cliff.svg")).unwrap();
    for name in
        [">ENG70: 0 B, IMPLICIT_PRECOMP_GEMM: 1 KiB<", ">FFT_TILING, ENG3, FFT<", ">WINOGRAD_NONFUSED<"]
    {
        assert!(svg.contains(name), "{name}");
    }
    assert_eq!(svg.matches("<circle").count(), 6);
}

#[test]
fn a_figure_may_be_chosen_and_its_numbers_be_had_alone() {
    let folder = Folder::new();
    let said = folder.succeed("figures --only cliff --csv --out numbers");
    assert!(!said.contains("left out"), "it is of the H200 alone, which has them all: {said}");
    assert!(said.ends_with("figures in numbers: 1\n"), "{said}");
    assert_eq!(files(&folder.path("numbers")).len(), 2);
    let csv = text(&folder.read("numbers/cliff.csv"));
    assert!(csv.starts_with("algorithm,workspace_bytes,time_ms\n") && csv.contains("FFT_TILING,"), "{csv}");
    for (arguments, part) in [
        ("figures --only nothing --out x", "cliff"),
        ("figures --device recorded:nowhere --out x", "nowhere"),
        ("figures --device a100 --out x", "for `plan` and `figures` h200, h100 and recorded:FILE"),
        ("figures --net lenet --out x", "alexnet, deepbench, densenet40"),
    ] {
        let output = folder.run(arguments);
        assert!(!output.status.success() && text(&output.stderr).contains(part), "{}", text(&output.stderr));
    }
}

#[test]
fn a_table_of_powers_of_two_is_not_said_to_have_all_sizes() {
    let folder = Folder::new();
    let table = root().join("data/profiles/nvidia-h200/alexnet-256-powerOfTwo.jsonl");
    folder.succeed(&format!("figures --device recorded:{} --net alexnet --csv --out x", table.display()));
    let papers = text(&folder.read("x/papers.csv"));
    let said = "AlexNet 256,convolutions at 64 MiB: gain of powers of two instead of all sizes,2.1,K80,";
    assert!(papers.contains(said) && !papers.contains("gain of all sizes"), "{papers}");
}

#[test]
fn a_plan_and_a_timing_are_drawn_into_the_file_that_plot_names() {
    let folder = Folder::new();
    let plan = "plan --conv n=256,c=64,h=27,k=192,r=5,pad=2 --device h200";
    assert!(folder.succeed(&format!("{plan} --plot plan.svg")).contains("drawn       plan.svg"));
    let svg = text(&folder.read("plan.svg"));
    for part in
        ["conv Forward", "8x32 WINOGRAD_NONFUSED", "prefers-color-scheme: dark", "NVIDIA H200", "</svg>"]
    {
        assert!(svg.contains(part), "{part:?} is missing in:\n{svg}");
    }
    let gpus =
        "plan --model resnet50 --device h200 --synthetic --gpus 1024 --link infiniband --plot gpus.svg";
    assert!(folder.succeed(gpus).contains("drawn       gpus.svg"));
    let svg = text(&folder.read("gpus.svg"));
    for part in ["images / s", "efficiency", "sums hidden", ">1024<", "10 µs and 45 GB/s", "NVIDIA H200"] {
        assert!(svg.contains(part), "{part:?} is missing in:\n{svg}");
    }
    folder.json("time --model net.prototxt --iterations 1 --policy undivided --plot time.png");
    let png = folder.read("time.png");
    assert!(png.starts_with(b"\x89PNG") && png.len() > 5000);
    let output = folder.run(&format!("{plan} --plot plan.pdf"));
    assert!(text(&output.stderr).contains("must end in .svg or .png"));
}
