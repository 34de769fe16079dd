//! `plan` without a net, from recorded tables, and with explanations.

use crate::fixtures::{Folder, digits_folder, text, without_progress};
use planner::Bytes;
use serde_json::Value;

pub(crate) const ALEXNET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/alexnet/net.prototxt");
pub(crate) const RECORDED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/data/profiles/nvidia-h200/alexnet-256-powerOfTwo.jsonl");

pub(crate) fn recorded(arguments: &str) -> String {
    format!("plan --model {ALEXNET} --synthetic --device recorded:{RECORDED} {arguments}")
}

fn recorded_of(model: &str, table: &str) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    format!(
        "plan --model {root}/models/{model}/net.prototxt --device recorded:{root}/data/profiles/nvidia-h200/{table}"
    )
}

pub(crate) fn numbers(values: &Value, field: &str) -> Vec<f64> {
    values.as_array().unwrap().iter().map(|value| value[field].as_f64().unwrap()).collect()
}

pub(crate) fn refused(folder: &Folder, arguments: &str, parts: &[&str]) {
    let output = folder.run(arguments);
    let stderr = without_progress(&text(&output.stderr));
    assert!(!output.status.success() && stderr.lines().count() == 1, "{arguments}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{arguments}: {part:?} is missing in: {stderr}");
    }
}

#[test]
fn adaptive_says_what_it_measured_and_what_that_may_cost() {
    let folder = Folder::new();
    let plan = "plan --device cpu --threads 1 --op forward --conv n=24,c=3,h=12,k=16,r=3,pad=1";
    let said = folder.succeed(&format!("{plan} --policy adaptive"));
    assert!(said.contains("% of the 24 there are; all would make the plan"), "{said}");
    let profiling = &folder.json(&format!("{plan} --policy adaptive"))["profiling"];
    let [measured, all] = ["measured", "all"].map(|field| profiling["coverage"][field].as_u64().unwrap());
    assert_eq!((all, profiling["policy"].as_str()), (24, Some("adaptive")));
    assert!((6..=24).contains(&measured) && profiling["coverage"]["lower_bound_ms"].as_f64() > Some(0.0));
    let profiling = &folder.json(&format!("{plan} --policy all"))["profiling"];
    assert_eq!((&profiling["measured"], &profiling["coverage"]), (&24.into(), &Value::Null), "{profiling}");
    refused(&folder, &format!("{plan} --benchmark-devices 0,1"), &["--benchmark-devices", "CPU"]);
}

#[test]
fn shapes_are_planned_without_a_net() {
    let folder = Folder::new();
    let one = "plan --threads 2 --policy undivided --op forward --conv n=2,c=3,h=8,k=4,r=3,pad=1";
    let report = folder.json(one);
    let kernels = report["plan"]["kernels"].as_array().unwrap();
    assert_eq!((kernels.len(), &report["shapes"]["convolutions"]), (1, &Value::from(1)));
    assert_eq!(
        (kernels[0]["kernel"]["name"].as_str(), kernels[0]["kernel"]["id"]["op"].as_str()),
        (Some("conv"), Some("Forward"))
    );
    assert!(kernels[0]["planned_ms"].as_f64().unwrap() > 0.0 && report["memory"].is_null());
    let two = folder.json(&format!("{one} --conv n=4,c=3,h=8,k=4,r=1,name=second --batch 8"));
    let layers: Vec<&str> = two["plan"]["kernels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kernel| kernel["kernel"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(layers, ["conv", "second"]);
    refused(&folder, "plan --conv n=2,c=3", &["--conv", "h= is missing"]);
    refused(&folder, "plan", &["--conv SHAPE, --csv FILE or --model FILE is missing"]);
    refused(&folder, "plan --conv n=2,c=1,h=1048576,k=1024,r=1", &["more than any machine holds"]);
    refused(&folder, "plan --conv n=100,c=64,h=8192,k=64,r=1", &["this machine has"]);
}

#[test]
fn a_list_in_deepbench_s_columns_is_planned() {
    let folder = Folder::new();
    let list = "source,W,H,C_in,N,C_out,kernel_w,kernel_h,pad_w,pad_h,stride_w,stride_h\n\
                speech,20,10,1,4,8,5,3,0,0,2,2\nvision,7,7,8,4,8,3,3,1,1,1,1\n";
    folder.write("list.csv", list);
    let report = folder.json("plan --threads 2 --policy undivided --csv list.csv");
    let kernels = report["plan"]["kernels"].as_array().unwrap();
    assert_eq!((kernels.len(), kernels[0]["kernel"]["name"].as_str()), (6, Some("speech:2")));
    assert_eq!(report["shapes"]["source"], "list.csv");
    folder.write("list.csv", list.replace("20,10", "20,2"));
    refused(&folder, "plan --csv list.csv", &["list.csv:2", "window of 3"]);
    folder.write("list.csv", "\n");
    refused(&folder, "plan --csv list.csv", &["list.csv: it lists no convolution"]);
    refused(&folder, "plan --csv nowhere.csv", &["nowhere.csv"]);
}

#[test]
fn an_explanation_has_fronts_prices_and_a_curve() {
    let folder = Folder::new();
    for policy in ["--workspace-limit 64MiB", "--total-workspace 300MiB", "--workspace-policy ws"] {
        let report = folder.json(&recorded(&format!("--batch 256 --explain {policy}")));
        let (plan, explanation) = (&report["plan"], &report["explanation"]);
        for kernel in explanation["kernels"].as_array().unwrap() {
            let (times, workspaces) =
                (numbers(&kernel["costs"], "time_ms"), numbers(&kernel["costs"], "workspace"));
            assert!(times.windows(2).all(|pair| pair[0] > pair[1]));
            assert!(workspaces.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(kernel["front"].as_array().unwrap().len(), times.len());
            assert!(kernel["chosen"].as_u64().unwrap() < times.len() as u64);
            if let Some(lacking) = kernel["explanation"]["LacksWorkspace"]["lacking"].as_f64() {
                assert_eq!(kernel["available"].as_f64().unwrap() + lacking, workspaces[workspaces.len() - 1]);
            }
        }
        let (limits, times) =
            (numbers(&explanation["curve"], "workspace"), numbers(&explanation["curve"], "time_ms"));
        assert!(times.windows(2).all(|pair| pair[0] > pair[1]));
        let here =
            limits.iter().rposition(|&limit| limit <= plan["options"]["limit"].as_f64().unwrap()).unwrap();
        let planned = plan["time_ms"].as_f64().unwrap();
        // Under WD the curve has the corners of the convex hull, and the plan may lie below the staircase.
        assert!(planned <= times[here] + 1e-9);
        if !policy.contains("total") {
            assert!((planned - times[here]).abs() < 1e-9);
        }
        assert!(explanation["price_ms_per_mib"].as_f64().unwrap() >= 0.0);
        assert_eq!(explanation["smallest_limit"].as_f64().unwrap(), limits[0]);
        let said = folder.succeed(&recorded(&format!("--batch 256 --explain {policy}")));
        let of = if policy.contains("total") { "total" } else { "limit" };
        for part in [
            "chosen",
            "x faster but lacks ",
            "more workspace would save nothing",
            &format!("this plan's {of} is here"),
            &format!("smallest feasible {of}"),
        ] {
            assert!(said.contains(part), "{part:?} is missing in:\n{said}");
        }
    }
}

#[test]
fn no_workspace_is_a_limit() {
    let folder = Folder::new();
    let none = folder.json(&recorded("--batch 256 --workspace-limit 0 --explain"));
    let times = |report: &Value| report["plan"]["time_ms"].as_f64().unwrap();
    for options in ["--total-workspace 0", "--workspace-policy ws --workspace-limit 0"] {
        let report = folder.json(&recorded(&format!("--batch 256 --explain {options}")));
        assert_eq!(times(&report), times(&none), "{options}");
        assert!(numbers(&report["plan"]["kernels"], "workspace").iter().all(|&bytes| bytes == 0.0));
        assert_eq!(report["plan"]["options"]["limit"].as_f64(), Some(0.0));
        let (explanation, price) = (&report["explanation"], "price_ms_per_mib");
        assert_eq!(explanation["smallest_limit"].as_f64(), Some(0.0));
        assert!(explanation[price].as_f64().unwrap() > 0.0, "{explanation}");
        folder.succeed(&recorded(&format!("--batch 256 --explain {options}")));
    }
    let variable = ("UCUDNN_DEFAULT_WORKSPACE_LIMIT", "0");
    let output = folder.run_with(&recorded("--batch 256 --json"), &[variable]);
    let report: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!(times(&report), times(&none));
    let memory = recorded("--batch 256 --device-memory 0");
    refused(&folder, &memory, &["--device-memory 0", "the smallest budget with a plan is"]);
}

/// One GPU of several takes as long as it does alone.
#[test]
fn several_gpus_run_what_was_planned() {
    let (folder, plan) = (Folder::new(), "plan --model alexnet --device h200 --synthetic --gpus 2");
    let step_ms = |report: &Value| report["scaling"]["points"][0]["step_ms"].as_f64().unwrap();
    let divided = folder.json(&format!("{plan} --total-workspace 60MiB"));
    let limited = folder.json(&format!("{plan} --workspace-policy ws --total-workspace 60MiB"));
    let kernels_ms = |report: &Value| report["plan"]["time_ms"].as_f64().unwrap();
    let besides = [&divided, &limited].map(|report| step_ms(report) - kernels_ms(report));
    assert!(besides[0] > 0.0 && (besides[0] - besides[1]).abs() < 1e-9, "{besides:?}");
    // What is added up is kept: 950 MiB are enough for one alone.
    folder.json(&format!("{} --device-memory 950MiB", plan.replace(" --gpus 2", "")));
    refused(
        &folder,
        &format!("{plan} --device-memory 950MiB"),
        &["the smallest budget with a plan is 1.1 GiB"],
    );
    let scheduled = folder.json(&format!("{plan} --device-memory 1150MiB"));
    let planned_ms = scheduled["schedule"]["planned_ms"].as_f64().unwrap();
    assert!((step_ms(&scheduled) - planned_ms).abs() < 1e-9, "{planned_ms}");
}

#[test]
fn a_plan_is_verified_where_it_can_run() {
    let folder = Folder::new();
    let shapes = "--threads 2 --conv n=4,c=3,h=8,k=4,r=3 --conv n=4,c=3,h=8,k=4,r=3,name=twin";
    for subject in [shapes, "--model net.prototxt"] {
        let plan = format!("plan --policy undivided {subject}");
        let said = folder.succeed(&format!("{plan} --verify"));
        let sentence =
            "replacing and adding, against exact sums over their outputs: relative L2 distance about";
        assert!(said.contains(sentence), "{said}");
        assert!(!folder.succeed(&plan).contains("verified"));
    }
    let explained = folder.json(&format!("plan --policy undivided {shapes} --explain"));
    let smallest = &explained["explanation"]["smallest_limit"];
    let said =
        folder.succeed(&format!("plan --policy undivided --workspace-limit {smallest} {shapes} --verify"));
    assert!(said.contains("verified    6 kernels, 3 of them different") && !said.contains("0.0e0"), "{said}");
}

#[test]
fn the_smallest_feasible_limit_is_named_with_its_kernel_and_does() {
    let folder = Folder::new();
    let shape = "--conv n=8,c=4,h=16,k=8,r=3,pad=1 --threads 2 --policy undivided";
    let explained = folder.json(&format!("plan {shape} --explain"));
    let smallest = explained["explanation"]["smallest_limit"].as_u64().unwrap();
    assert!(explained["explanation"]["smallest_limit_kernel"].as_str().unwrap().starts_with("conv "));
    if smallest > 1 {
        let output = folder.run(&format!("plan {shape} --workspace-limit {}", smallest - 1));
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains(&format!("smallest feasible limit is {}", Bytes(smallest).exact())),
            "{stderr}"
        );
        folder.succeed(&format!("plan {shape} --workspace-limit {smallest}"));
    }
}

#[test]
fn a_budget_of_memory_gives_every_kernel_what_is_free_at_its_step() {
    let folder = Folder::new();
    let keep = "--batch 256 --memory-policy keep --explain";
    let at = |budget: u64| folder.json(&recorded(&format!("{keep} --device-memory {budget}")));
    let field = |report: &Value, name: &str| report["budget"][name].as_f64().unwrap();
    let most = at(200 << 30);
    let (smallest, enough) = (field(&most, "smallest_budget") as u64, field(&most, "enough_budget") as u64);
    assert!(smallest < enough);
    assert_eq!(field(&most, "time_ms"), field(&most, "unlimited_time_ms"));
    let mut last_ms = f64::INFINITY;
    for part in 0..=4 {
        let budget = smallest + (enough - smallest) / 4 * part + if part == 4 { 3 } else { 0 };
        let report = at(budget);
        let time_ms = field(&report, "time_ms");
        assert!(field(&report, "arena") <= budget as f64 && time_ms <= last_ms);
        for other in ["wr_time_ms", "wd_time_ms"] {
            assert!(
                report["budget"][other].as_f64().is_none_or(|other_ms| time_ms <= other_ms + 1e-9),
                "{other}"
            );
        }
        assert_eq!(time_ms <= field(&report, "unlimited_time_ms"), part == 4, "time suffers below {enough}");
        let curve = &report["budget"]["curve"];
        assert_eq!(numbers(curve, "workspace")[0], smallest as f64);
        last_ms = time_ms;
        let lacks = |report: &Value, kernel: usize| {
            report["explanation"]["kernels"][kernel]["explanation"]["LacksWorkspace"]["lacking"].as_u64()
        };
        let kernels = report["explanation"]["kernels"].as_array().unwrap().len();
        let least = (0..kernels).filter_map(|kernel| Some((lacks(&report, kernel)?, kernel))).min();
        assert_eq!(least.is_none(), part == 4);
        if let Some((lacking, kernel)) = least {
            assert!(lacks(&at(budget + lacking - 1), kernel).is_some_and(|lacking| lacking > 0));
            assert_eq!(lacks(&at(budget + lacking), kernel), None, "with what it lacks it is the fastest");
        }
    }
    let below = format!("--batch 256 --memory-policy keep --device-memory {}", smallest - 1);
    refused(&folder, &recorded(&below), &["--device-memory", "smallest budget", &Bytes(smallest).exact()]);
    refused(
        &folder,
        "plan --conv n=2,c=1,h=3,k=1,r=1 --device-memory 1GiB",
        &["--device-memory", "needs a net"],
    );
}

/// Nothing goes backward, so that there is nothing to copy or to wait for.
#[test]
fn data_alone_have_a_smallest_budget() {
    let folder = Folder::new();
    let data =
        "dummy_data_param { shape { dim: 5 dim: 4 dim: 9 dim: 9 } data_filler { type: 'gaussian' std: 1 } }";
    folder.write("data.prototxt", format!("layer {{ name: 'd' type: 'DummyData' top: 'data' {data} }}"));
    let plan = "plan --model data.prototxt --device h200 --device-memory 1";
    refused(&folder, plan, &["--device-memory", "the smallest budget with a plan is", "6.5 KiB"]);
}

/// On a link whose bytes take no time.
#[test]
fn several_gpus_add_up_what_is_updated_together() {
    let folder = Folder::new();
    let report = folder.json("plan --model resnet18 --device h200 --synthetic --gpus 2 --link 1000,1e12");
    let outline: memory::Outline = serde_json::from_value(report["outline"].clone()).unwrap();
    let (updates, last) = outline.updates();
    let count = updates.iter().flatten().chain(&last).count();
    let sums_ms = report["scaling"]["points"][1]["sums_ms"].as_f64().unwrap();
    assert!(count > 2 && (sums_ms - 2.0 * count as f64).abs() < 0.01, "{count} updates, {sums_ms} ms");
}

#[test]
fn a_run_keeps_its_budget_of_memory() {
    let folder = Folder::new();
    let time = "time --model net.prototxt --iterations 1 --threads 2 --database db";
    let free = folder.json(&format!("{time} --device-memory 8GiB"));
    let enough = free["runs"][0]["memory"]["arena"].as_u64().unwrap();
    let tight = folder.json(&format!("{time} --device-memory {}", enough - 4096));
    assert!(tight["runs"][0]["memory"]["arena"].as_u64().unwrap() <= enough - 4096);
    let said = folder.succeed(&format!("{time} --memory-policy keep --device-memory {}", enough - 4096));
    for part in ["WS by the schedule", "time suffers below", "not everything fits below"] {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
    // A training and a test do so, too; with its own plan, a training that resumes keeps it.
    let train = "train --solver solver.prototxt --snapshot-prefix small --threads 2 --database db --memory-policy keep";
    let arena = |report: &Value| report["memory"]["arena"].as_u64().unwrap();
    let free = folder.json(&format!("{train} --max-iter 2 --device-memory 8GiB"));
    let budget = arena(&free) - 4096;
    let tight = folder.json(&format!("{train} --max-iter 2 --device-memory {budget}"));
    assert!(arena(&tight) <= budget && tight["budget"]["budget"] == budget, "{}", tight["memory"]);
    let resume = "--snapshot small_iter_2.solverstate.safetensors --max-iter 3";
    let resumed = folder.json(&format!("{train} {resume} --device-memory {budget}"));
    assert!(resumed["notes"].to_string().contains("the snapshot's plan is used"), "{}", resumed["notes"]);
    let test = "test --model net.prototxt --weights small_iter_2.safetensors --iterations 1 --threads 2 --database db";
    let free = folder.json(&format!("{test} --device-memory 8GiB"));
    let tight = folder.json(&format!("{test} --verify --device-memory {}", arena(&free)));
    assert!(arena(&tight) <= arena(&free) && tight["loss"] == free["loss"]);
    refused(&folder, &format!("{train} --device-memory 4096"), &["--device-memory 4 KiB", "smallest budget"]);
}

/// What a table of a GPU predicts is planned as on that GPU: the file's mini-batch, the paper's limit, and no word of a
/// CPU.
#[test]
fn a_gpu_s_table_has_a_gpu_s_defaults_and_needs_no_data() {
    let folder = Folder::new();
    let plan = recorded_of("resnet18", "resnet18-128-powerOfTwo.jsonl");
    let report = folder.json(&plan);
    assert_eq!(
        (&report["net"]["mini_batch"], &report["plan"]["options"]["limit"]),
        (&128.into(), &(64 << 20).into())
    );
    assert!(report["plan"]["gain"].as_f64().unwrap() > 1.6, "{}", report["plan"]["gain"]);
    assert_eq!(report["notes"], Value::Array(Vec::new()));
    let said = folder.succeed(&plan);
    assert!(said.contains("(not opened), 3x224x224\n") && !said.contains("CPU"), "{said}");
}

#[test]
fn workspace_by_layer_is_there_in_a_prediction_too() {
    let folder = Folder::new();
    for policy in ["--workspace-limit 64M", "--total-workspace 120MiB"] {
        let report =
            folder.json(&format!("{} {policy}", recorded_of("alexnet", "alexnet-256-powerOfTwo.jsonl")));
        let kernels = report["plan"]["kernels"].as_array().unwrap();
        let of = |layer: &Value, op: &str| {
            let found = kernels
                .iter()
                .find(|kernel| kernel["kernel"]["name"] == *layer && kernel["kernel"]["id"]["op"] == op);
            found.map_or(0, |kernel| kernel["workspace"].as_u64().unwrap())
        };
        let layers = report["layer_memory"].as_array().unwrap();
        let convolutions = layers.iter().filter(|layer| layer["type_name"] == "Convolution");
        let mut sum = 0;
        for layer in convolutions {
            let found = layer["workspace"].as_u64().unwrap();
            let [forward, data, filter] =
                ["Forward", "BackwardData", "BackwardFilter"].map(|op| of(&layer["name"], op));
            // Kernels of one step share their workspace, but have segments side by side under WD.
            let backward = if policy.contains("total") { data + filter } else { data.max(filter) };
            assert!(found.abs_diff(forward.max(backward)) < 1024, "{layer}: {forward}, {data}, {filter}");
            sum += found;
        }
        assert!(sum > 0, "{policy}");
    }
}

/// Of data whose size no `crop_size` tells, a header is read and no more; without one the size is asked for.
#[test]
fn a_plan_opens_no_data() {
    let folder = Folder::new();
    let plan = |net: &str| format!("plan --model {net} --policy undivided --threads 1");
    folder.change_net(&digits_folder(), "cut");
    refused(&folder, &plan("net.prototxt"), &["cut", "crop_size", "--synthetic=CxHxW"]);
    refused(&folder, "profile --model net.prototxt --threads 1", &["cut", "--synthetic=CxHxW"]);
    let header = [0u32, 28, 20].map(u32::to_be_bytes).concat();
    folder.write("cut/train-images-idx3-ubyte", [&0x803u32.to_be_bytes()[..], &header[..]].concat());
    let report = folder.json(&plan("net.prototxt"));
    assert_eq!(
        (&report["net"]["data"]["shape"], &report["net"]["data"]["images"]),
        (&"1x28x20".into(), &Value::Null)
    );
    assert_eq!(report["net"]["data"]["unopened"], true);
    assert!(folder.succeed(&plan("net.prototxt")).contains("cut (not opened), 1x28x20\n"));
    refused(&folder, "time --model net.prototxt --threads 1", &["train-labels"]);
    let profile = "profile --model net.prototxt --policy undivided --threads 1";
    refused(&folder, profile, &["neither a database nor --out FILE"]);
    assert_eq!(folder.json(&format!("{profile} --out table.jsonl"))["kernels"], 5);
}

/// What stands for the data lies where the data will.
#[test]
fn a_plan_foretells_the_memory_of_the_run() {
    let folder = Folder::new();
    let planned = folder.json("plan --model net.prototxt --database db --threads 2");
    let timed = folder.json("time --model net.prototxt --database db --threads 2 --iterations 1");
    let arena = |memory: &Value| memory["arena"].as_u64().unwrap();
    assert_eq!(arena(&planned["memory"]), arena(&timed["runs"][0]["memory"]));
}

#[test]
fn what_is_known_is_of_this_plan() {
    let folder = Folder::new();
    folder.succeed("plan --model net.prototxt --database db --threads 1");
    let profiling = |arguments: &str| {
        let report = folder.json(&format!("plan {arguments} --database db --threads 1"));
        ["measured", "known"].map(|field| report["profiling"][field].as_u64().unwrap())
    };
    assert_eq!(profiling("--conv n=2,c=3,h=6,k=4,r=3 --op forward --policy undivided"), [1, 0]);
    assert_eq!(profiling("--conv n=2,c=3,h=6,k=4,r=3 --op forward"), [1, 1]);
    assert_eq!(profiling("--conv n=2,c=3,h=6,k=4,r=3 --op forward --policy undivided"), [0, 1]);
}

#[test]
fn a_list_needs_no_source() {
    let folder = Folder::new();
    folder.write("list.csv", "20,10,1,4,8,5,3,0,0,2,2\n");
    let report = folder.json("plan --threads 2 --policy undivided --op forward --csv list.csv");
    assert_eq!(report["plan"]["kernels"][0]["kernel"]["name"], "conv:1");
    // The rule of a net's limit holds for a list.
    assert_eq!(report["plan"]["options"]["limit"], 16 << 20);
    folder.write("list.csv", "W,H,N\n20,10,1\n");
    refused(&folder, "plan --csv list.csv", &["list.csv:1", "C_in is missing", "[source] W H C_in N C_out"]);
    let help = folder.succeed("plan --help");
    for part in [
        "source (may be left out), W, H, C_in, N, C_out",
        "Planning:",
        "Measuring:",
        "Net:",
        "Run:",
        "Examples:\n",
    ] {
        assert!(help.contains(part), "{part:?} is missing in:\n{help}");
    }
    assert!(folder.succeed("--help").contains("Exit codes: 0 success, 1 failure, 2 "));
}
