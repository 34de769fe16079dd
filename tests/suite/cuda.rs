//! The command on a GPU, and where there is none.

use crate::bad_input::assert_refused;
use crate::fixtures::{Folder, png, root};
use serde_json::Value;
use std::f64::consts::TAU;

fn model(name: &str) -> String {
    root().join("models").join(name).display().to_string()
}

fn has_gpu(folder: &Folder) -> bool {
    let devices = folder.json("devices");
    devices["devices"].as_array().unwrap().iter().any(|device| device["id"] == "cuda:0")
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[test]
fn a_gpu_that_is_not_there_is_one_sentence() {
    let folder = Folder::new();
    let time =
        |device: &str| folder.run(&format!("time --model net.prototxt --iterations 1 --device {device}"));
    let missing = time("cuda:99");
    assert_refused(&missing, missing.status.code().filter(|&code| code != 0).unwrap(), &["99"], "cuda:99");
    if has_gpu(&folder) {
        assert!(time("cuda").status.success());
    } else {
        assert_refused(&time("cuda"), 2, &["--device cuda:0: "], "no GPU");
        assert_refused(&time("cuda:0"), 2, &["--device cuda:0: "], "no GPU");
        assert_eq!(
            folder.json("time --model net.prototxt --iterations 1 --device auto")["device"]["id"],
            "cpu"
        );
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn devices_begin_with_the_gpu() {
    let folder = Folder::new();
    assert!(folder.succeed("devices").starts_with("cuda:0: "));
    let devices = folder.json("devices");
    let gpu = &devices["devices"][0];
    assert_eq!((&gpu["id"], &gpu["math"]), (&"cuda:0".into(), &"fp32".into()));
    assert!(gpu["versions"].as_str().unwrap().contains("cuDNN"), "{gpu}");
    let cpu = devices["devices"].as_array().unwrap().last().unwrap();
    assert!(cpu["no_gpu"].is_null(), "{cpu}");
}

/// GPUs that measure are named by number or all together; with one in the machine that is the one.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn all_gpus_may_measure_for_one() {
    let folder = Folder::new();
    let plan = "plan --device cuda --op forward --conv n=16,c=16,h=14,k=32,r=3,pad=1 --policy all";
    let alone = folder.json(plan);
    let together = folder.json(&format!("{plan} --benchmark-devices all"));
    let gpus = folder.json("devices")["devices"].as_array().unwrap().len() - 1;
    let devices = |report: &Value| report["profiling"]["devices"].as_u64();
    assert_eq!((devices(&alone), devices(&together)), (Some(1), Some(gpus as u64)));
    for report in [&alone, &together] {
        let profiling = &report["profiling"];
        assert_eq!((&profiling["measured"], &profiling["known"]), (&16.into(), &0.into()), "{profiling}");
        assert!(report["plan"]["time_ms"].as_f64() > Some(0.0));
    }
    let missing = folder.run(&format!("{plan} --benchmark-devices 0,99"));
    assert_refused(&missing, 2, &["--benchmark-devices", "cuda:99"], "cuda:99");
}

/// A GPU is used unasked, and what is said of a run agrees with itself.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn time_reports_the_gpu_its_kernels_and_a_replay() {
    let (lenet, quick) = (model("lenet/net.prototxt"), model("cifar10_quick/net.prototxt"));
    let folder = Folder::new();
    for (arguments, math) in [
        (format!("--model {lenet} --device cuda"), "fp32"),
        (format!("--model {lenet} --device auto --total-workspace 64MiB"), "fp32"),
        (format!("--model {quick} --synthetic=3x32x32 --device cuda:0 --math tf32"), "tf32"),
    ] {
        let report = folder.json(&format!("time --iterations 3 {arguments}"));
        let (device, run) = (&report["device"], &report["runs"][0]);
        assert_eq!((&device["id"], &device["math"]), (&"cuda:0".into(), &math.into()), "{arguments}");
        assert!(run["initial_loss"].as_f64().unwrap().is_finite());
        for times in [&run["iterations_ms"], &run["replayed_ms"]] {
            let times = numbers(times);
            assert!(times.len() == 3 && times.iter().all(|&ms| ms > 0.0), "{arguments}: {times:?}");
        }
        let kernels = run["plan"]["kernels"].as_array().unwrap();
        assert_eq!(report["net"]["kernels"], kernels.len());
        assert!(kernels.iter().all(|kernel| kernel["measured_ms"].as_f64().unwrap() > 0.0), "{arguments}");
        assert!(run["memory"]["arena"].as_u64().unwrap() > 0);
        assert!(run["memory"]["gpu"]["free"].as_u64() > run["memory"]["arena"].as_u64());
        assert!(run["peak_resident"].as_u64().unwrap() > 0);
    }
}

/// `--layout auto` measures both orders; plans of each from the same measurements say which is faster.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_faster_layout_is_chosen() {
    let folder = Folder::new();
    let plan = |layout: &str| {
        let net = model("lenet/net.prototxt");
        folder.json(&format!("plan --model {net} --batch 8 --device cuda --database known --layout {layout}"))
    };
    let chosen = plan("auto");
    let [nchw, nhwc] = ["nchw", "nhwc"].map(|layout| plan(&format!("{layout} --offline")));
    let time = |report: &Value| report["plan"]["time_ms"].as_f64().unwrap();
    let faster = if time(&nhwc) < time(&nchw) { &nhwc } else { &nchw };
    assert_eq!((&chosen["device"]["format"], time(&chosen)), (&faster["device"]["format"], time(faster)));
    let shape = "plan --conv n=4,c=3,h=8,k=4,r=3 --device cuda --layout auto";
    assert_refused(&folder.run(shape), 2, &["--layout auto needs a net"], shape);
}

/// Real data cannot be read by recorded work; the run after it must be none the wiser.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn compare_times_the_same_net_twice() {
    let arguments =
        format!("time --iterations 3 --compare --device cuda --model {}", model("lenet/net.prototxt"));
    let report = Folder::new().json(&arguments);
    let loss = |run: usize| report["runs"][run]["initial_loss"].as_f64().unwrap();
    assert!(
        (loss(0) - loss(1)).abs() < 1e-2 * loss(0),
        "the same net and images: {} and {}",
        loss(0),
        loss(1)
    );
    assert_eq!(numbers(&report["runs"][1]["replayed_ms"]).len(), 3);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn lenet_learns_the_digits() {
    let solver = model("lenet/solver.prototxt");
    for format in ["", "--dtype bf16", "--layout nhwc --dtype bf16"] {
        let report =
            Folder::new().json(&format!("train --solver {solver} --no-snapshot --device cuda {format}"));
        assert_eq!(report["device"]["id"], "cuda:0");
        let accuracy = report["summary"]["accuracies"][0]["values"][0].as_f64().unwrap();
        assert!(accuracy >= 0.97, "{accuracy} of the test images are right with {format}");
    }
}

/// What the processor has trained a GPU tests, and the other way round.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn weights_are_good_on_both_devices() {
    let folder = Folder::new();
    for (trains, tests) in [("cpu", "cuda"), ("cuda", "cpu")] {
        folder
            .succeed(&format!("train --solver solver.prototxt --snapshot-prefix {trains} --device {trains}"));
        let loss = |device: &str| {
            let weights = format!("--weights {trains}_iter_12.safetensors --iterations 4");
            let report = folder.json(&format!("test --model net.prototxt {weights} --device {device}"));
            report["loss"].as_f64().unwrap()
        };
        let (here, there) = (loss(trains), loss(tests));
        assert!((here - there).abs() < 2e-3 * here, "{trains} says {here}, {tests} says {there}");
    }
}

/// What one mode has trained any other tests, on the same snapshot.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn weights_are_good_in_every_format() {
    let folder = Folder::new();
    let modes = [
        "--device cpu",
        "--device cuda --layout nhwc",
        "--device cuda --dtype bf16",
        "--device cuda --dtype bf16 --layout nhwc",
    ];
    for (number, trains) in modes.iter().enumerate() {
        folder.succeed(&format!("train --solver solver.prototxt --snapshot-prefix mode{number} {trains}"));
        let loss = |mode: &str| {
            let weights = format!("--weights mode{number}_iter_12.safetensors --iterations 4");
            let report = folder.json(&format!("test --model net.prototxt {weights} {mode}"));
            report["loss"].as_f64().unwrap()
        };
        let expected = loss(trains);
        for mode in modes {
            let found = loss(mode);
            assert!(
                (found - expected).abs() < 1e-2 * expected,
                "{trains} says {expected}, {mode} says {found}"
            );
        }
        folder.succeed(&format!(
            "train --solver solver.prototxt --snapshot mode{number}_iter_12.solverstate.safetensors --max-iter 14 {}",
            modes[(number + 1) % modes.len()]
        ));
    }
}

/// Times, a total workspace that is divided, a budget of memory, and a verified plan.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_net_is_timed_in_every_format() {
    for options in [
        "--layout nhwc",
        "--dtype bf16 --workspace-policy wd --total-workspace 64MiB",
        "--dtype bf16 --layout nhwc --device-memory 64MiB",
    ] {
        let arguments = format!("time --iterations 3 --device cuda --synthetic=3x32x32 --verify {options}");
        let report =
            Folder::new().json(&format!("{arguments} --model {}", model("cifar10_quick/net.prototxt")));
        assert_eq!(numbers(&report["runs"][0]["replayed_ms"]).len(), 3, "{options}");
    }
}

const CLASSES: u32 = 4;

/// How bright a point is in a picture of `class`: stripes lying, standing and slanted, and rings, of any width and
/// phase.
fn brightness(class: u32, [x, y]: [f64; 2], frequency: f64, phase: f64) -> f64 {
    let distance = match class {
        0 => y,
        1 => x,
        2 => (x + y) / std::f64::consts::SQRT_2,
        _ => x.hypot(y),
    };
    (TAU * frequency * distance + phase).sin()
}

/// A number from 0 to 1 that looks random.
fn draw(seed: u32) -> f64 {
    let mixed = (seed ^ (seed >> 16)).wrapping_mul(0x7feb_352d);
    let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x846c_a68b);
    f64::from(mixed ^ (mixed >> 16)) / f64::from(u32::MAX)
}

/// A folder `images` of 160 noisy pictures, 72 pixels wide and high, and the list of them.
fn render(folder: &Folder) {
    const SIDE: u32 = 72;
    let mut list = String::new();
    for number in 0..160 {
        let class = number % CLASSES;
        let [frequency, phase, tint] = [0, 1, 2].map(|which| draw(3 * number + which));
        let pixel = |x: u32, y: u32| {
            let point = [x, y].map(|pixel| f64::from(pixel) / f64::from(SIDE) - 0.5);
            let bright = brightness(class, point, 3.0 + 4.0 * frequency, TAU * phase);
            let noise = draw(number * SIDE * SIDE + y * SIDE + x + 1_000_000) - 0.5;
            let level = 128.0 + 70.0 * bright + 60.0 * noise;
            [level * (0.6 + 0.4 * tint), level, level * (1.0 - 0.4 * tint)].map(|part| part as u8)
        };
        let name = format!("{number}.png");
        folder.write(&format!("images/{name}"), png(SIDE, pixel));
        list += &format!("{name} {class}\n");
    }
    folder.write("images.txt", list);
}

/// `models/resnet18` on pictures of 64x64.
fn write_resnet(folder: &Folder) {
    let mut net = std::fs::read_to_string(model("resnet18/net.prototxt")).unwrap();
    for (from, to) in [
        ("../../data/imagenet/train.txt", "images.txt"),
        ("../../data/imagenet/train/", "images/"),
        ("crop_size: 224", "crop_size: 64"),
        ("new_height: 256 new_width: 256", "new_height: 72 new_width: 72"),
    ] {
        assert!(net.contains(from), "the net has no {from}");
        net = net.replace(from, to);
    }
    folder.write("resnet18.prototxt", net);
    // At four times the rate the loss now and then leaves the minimum that it has reached.
    let solver =
        "net: \"resnet18.prototxt\" base_lr: 0.005 lr_policy: \"fixed\" momentum: 0.9 weight_decay: 0.0001
        max_iter: 80 display: 1 random_seed: 1";
    folder.write("resnet18_solver.prototxt", solver);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn resnet_18_learns_a_folder_of_images() {
    let folder = Folder::new();
    render(&folder);
    write_resnet(&folder);
    let train = "train --solver resnet18_solver.prototxt --batch 16 --no-snapshot --device cuda";
    for format in ["", "--dtype bf16 --layout nhwc"] {
        resnet_learns(&folder.json(&format!("{train} {format}")));
    }
}

fn resnet_learns(report: &Value) {
    let losses: Vec<f64> =
        report["steps"].as_array().unwrap().iter().map(|step| step["loss"].as_f64().unwrap()).collect();
    let last = losses[losses.len() - 10..].iter().sum::<f64>() / 10.0;
    // Who knows how many classes there are, but does not look at the images, stays at ln 4.
    let blind = f64::from(CLASSES).ln();
    assert!(losses.len() == 80 && losses[0] > blind && last < 0.5 * blind, "{losses:?}");
}
