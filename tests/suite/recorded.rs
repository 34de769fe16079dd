//! `plan` from what was recorded on another machine.

use crate::fixtures::{Folder, text};
use crate::plan::{ALEXNET, RECORDED, numbers, recorded, refused};
use serde_json::Value;
use std::fs;

#[test]
fn a_recorded_table_gives_a_prediction_and_says_so() {
    let folder = Folder::new();
    let said = folder.succeed(&recorded("--batch 256"));
    for part in ["PREDICTION", "NVIDIA H200", "nothing was measured on this machine", "predicted"] {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
    let fp32 = folder.json(&recorded("--batch 256"));
    assert_eq!((&fp32["plan"]["prediction"], &fp32["profiling"]), (&Value::Bool(true), &Value::Null));
    assert!(fp32["recorded"]["name"].as_str().unwrap().contains("H200") && fp32["device"].is_null());
    // What the record of this table's day says: 34.6 ms undivided, 13.7 ms divided.
    assert!((fp32["plan"]["time_ms"].as_f64().unwrap() - 13.7).abs() < 0.7);
    assert!(fp32["plan"]["gain"].as_f64().unwrap() > 2.3);
    let tf32 = folder.json(&recorded("--batch 256 --math tf32"));
    assert!(tf32["plan"]["time_ms"].as_f64() < fp32["plan"]["time_ms"].as_f64());
}

#[test]
fn a_compressed_table_with_all_sizes_gives_a_plan_at_least_as_good() {
    let folder = Folder::new();
    let time_ms = |arguments: &str| folder.json(arguments)["plan"]["time_ms"].as_f64().unwrap();
    let table = RECORDED.replace("powerOfTwo.jsonl", "all-fp32.jsonl.gz");
    let all =
        format!("plan --model {ALEXNET} --synthetic --batch 256 --policy all --device recorded:{table}");
    // Two recordings of one GPU differ by some parts in a hundred.
    assert!(time_ms(&all) < 1.02 * time_ms(&recorded("--batch 256")));
    folder.write("cut.gz", fs::read(&table).unwrap().get(..1000).unwrap());
    refused(&folder, "plan --conv n=2,c=1,h=3,k=1,r=1 --device recorded:cut.gz", &["cut.gz"]);
}

#[test]
fn what_a_table_does_not_have_is_one_clear_sentence() {
    let folder = Folder::new();
    let table = format!("--device recorded:{RECORDED}");
    refused(
        &folder,
        &format!("plan --conv n=256,c=64,h=27,k=192,r=5,groups=64,name=mine {table}"),
        &["mine Forward (64x27x27, 192 filters 5x5, 64 groups)", "resembles", "jsonl"],
    );
    refused(
        &folder,
        &recorded("--batch 5000"),
        &["conv1 Forward", "micro-batch 5000", "over 16 times the 256"],
    );
    refused(&folder, "plan --conv n=2,c=1,h=3,k=1,r=1 --device recorded:nowhere.jsonl", &["nowhere.jsonl"]);
    folder.write("broken.jsonl", "{}\n");
    refused(
        &folder,
        "plan --conv n=2,c=1,h=3,k=1,r=1 --device recorded:broken.jsonl",
        &["broken.jsonl", "line 1"],
    );
    refused(&folder, &format!("time --model net.prototxt {table}"), &["--device", "`microbatch plan`"]);
    refused(&folder, "plan --model net.prototxt --math tf32 --device cpu", &["--math tf32"]);
    refused(&folder, "plan --model net.prototxt --dtype bf16 --device cpu", &["--dtype bf16 needs a GPU"]);
    refused(&folder, "time --model net.prototxt --layout nhwc --device cpu", &["--layout nhwc needs a GPU"]);
    // Where there is one order only, auto is that.
    folder.succeed("plan --model net.prototxt --layout auto --device cpu");
    // Formats that were not recorded, of a GPU and in a file.
    let net = format!("plan --model {ALEXNET} --device");
    for (options, from, there, wanted) in [
        (
            "h100 --dtype bf16 --layout nhwc",
            "h100",
            "FP32 in NCHW, TF32 in NCHW only",
            "none of BF16 in NHWC",
        ),
        (
            "h100 --dtype bf16 --layout auto",
            "h100",
            "TF32 in NCHW only",
            "none of BF16 in NCHW or BF16 in NHWC",
        ),
        (
            "h200 --layout nhwc",
            "h200",
            "BF16 in NHWC, FP32 in NCHW, TF32 in NCHW, TF32 in NHWC",
            "none of FP32 in NHWC",
        ),
        ("h200 --dtype bf16", "h200", "BF16 in NHWC", "none of BF16 in NCHW"),
    ] {
        refused(&folder, &format!("{net} {options}"), &[from, there, wanted]);
    }
    refused(
        &folder,
        &recorded("--layout nhwc"),
        &["jsonl", "FP32 in NCHW, TF32 in NCHW only", "FP32 in NHWC"],
    );
    let header = fs::read_to_string(RECORDED).unwrap().lines().next().unwrap().to_owned();
    folder.write("empty.jsonl", header);
    let empty = format!("{net} recorded:empty.jsonl --layout auto");
    refused(&folder, &empty, &["there are no measurements in empty.jsonl"]);
    for option in
        ["--threads 1", "--benchmark-devices 1", "--database db", "--no-database", "--offline", "--verify"]
    {
        let name = option.split(' ').next().unwrap();
        refused(&folder, &recorded(&format!("--batch 256 {option}")), &[name, "no effect", "recorded:"]);
    }
}

#[test]
fn a_recorded_gpu_is_planned_as_a_gpu_and_says_what_it_has() {
    let folder = Folder::new();
    let mut report = Value::Null;
    for (device, name) in [("h100", "NVIDIA H100"), ("h200", "NVIDIA H200")] {
        let plan = format!("plan --model {ALEXNET} --device {device}");
        let said = folder.succeed(&plan);
        for part in ["PREDICTION", name, "mini-batch 256", "at most 64 MiB"] {
            assert!(said.contains(part), "{part:?} is missing in:\n{said}");
        }
        assert!(!said.contains("ESTIMATE") && !said.contains("as this is a CPU"), "{said}");
        report = folder.json(&format!("{plan} --policy all"));
        assert!(report["plan"]["gain"].as_f64().unwrap() > 1.9 && report["estimate"].is_null());
    }
    let workspaces = numbers(&report["layer_memory"], "workspace");
    assert!(workspaces.iter().any(|&bytes| bytes > 1e6), "the columns are filled");
    let list = folder.json("plan --list --device h200");
    let kernels = list["kernels"]["rows"].as_array().unwrap();
    assert!(
        kernels.len() > 90 && kernels.iter().all(|row| row[3].as_str().unwrap().parse::<u32>().unwrap() >= 7)
    );
    assert!(folder.succeed("plan --list --device h200").contains("64x27x27, 192 filters 5x5, pad 2"));
    refused(&folder, "plan --list --device cpu", &["--list", "h200"]);
    refused(&folder, "time --model net.prototxt --device h200", &["\"h200\"", "nothing runs on it"]);
    assert!(folder.succeed("devices").contains("recorded, for `plan` and `figures`: h200, h100"));
}

#[test]
fn what_was_not_recorded_is_estimated_and_says_how_well() {
    let folder = Folder::new();
    let plan = format!("plan --model {ALEXNET} --device h200");
    assert!(folder.succeed(&format!("{plan} --batch 512")).contains("ESTIMATE    14 pairs more are scaled"));
    let [small, large] =
        [256, 512].map(|batch| folder.json(&format!("{plan} --batch {batch} --workspace-limit 8GiB")));
    assert_eq!((&small["estimate"], &large["estimate"]["estimated"]), (&Value::Null, &14.into()));
    let ratio = large["plan"]["time_ms"].as_f64().unwrap() / small["plan"]["time_ms"].as_f64().unwrap();
    assert!((1.8..=2.01).contains(&ratio), "twice the samples take {ratio} times as long");
    let error = &large["estimate"]["error"];
    let [median, most] = ["time_median", "time_nine_of_ten"].map(|field| error[field].as_f64().unwrap());
    assert!(1.0 < median && median < 1.5 && median < most, "{error}");
    // A layer of nobody's net; and on a table of powers of two, other sizes.
    folder.succeed("plan --conv n=256,c=96,h=27,k=256,r=5,pad=2 --device h200");
    folder.succeed("plan --model caffe_alexnet --device h200");
    assert!(folder.json(&recorded("--batch 100"))["estimate"]["estimated"].as_u64() > Some(10));
    // What nothing can be scaled to is named with what it was to be planned from.
    let from = "cannot plan from the tables of h200 in this program: cannot profile conv Forward (64x27x27";
    let grouped = "plan --conv n=8,c=64,h=27,k=64,r=5,pad=2,groups=8 --device h200";
    refused(&folder, grouped, &[from, "nothing recorded resembles it (Forward, FP32, 8 groups)"]);
}

/// As on the GPU: feature maps, and the copies of weights that passes read, have two bytes a number in BF16.
#[test]
fn a_recorded_gpu_is_planned_in_bf16_and_nhwc() {
    let folder = Folder::new();
    let resnet = "plan --model resnet50 --batch 256 --synthetic --device h200 --workspace-limit 64MiB";
    let plan = |options: &str| folder.json(&format!("{resnet} {options}"));
    let (fp32, tf32) = (plan("--math tf32"), plan("--math tf32 --layout nhwc"));
    let bf16 = plan("--dtype bf16 --layout nhwc");
    for (report, [dtype, math, layout]) in [
        (&fp32, ["f32", "tf32", "NCHW"]),
        (&tf32, ["f32", "tf32", "NHWC"]),
        (&bf16, ["bf16", "fp32", "NHWC"]),
    ] {
        for kernel in report["plan"]["kernels"].as_array().unwrap() {
            let id = &kernel["kernel"]["id"];
            assert_eq!([&id["dtype"], &id["math"], &id["layout"]], [dtype, math, layout]);
        }
        assert!(report["estimate"].is_null() && report["plan"]["prediction"] == true);
    }
    let time_ms = |report: &Value| report["plan"]["time_ms"].as_f64().unwrap();
    assert!(2.0 * time_ms(&bf16) < time_ms(&tf32) && 1.5 * time_ms(&tf32) < time_ms(&fp32));
    let layer = |report: &Value, name: &str| {
        let layers = report["layer_memory"].as_array().unwrap();
        let layer = layers.iter().find(|layer| layer["name"] == name).unwrap();
        ["data", "diff", "weights"].map(|field| layer[field].as_u64().unwrap())
    };
    for name in ["conv1", "res2.1.conv1/bn", "res5.3.conv2", "pool2", "fc"] {
        let ([data, diff, weights], [half, half_diff, with_copy]) = (layer(&tf32, name), layer(&bf16, name));
        assert_eq!((2 * half, 2 * half_diff), (data, diff), "{name}");
        let is_product = name.contains("conv") && !name.contains("bn") || name == "fc";
        // Biases are not copied.
        assert!(
            if is_product { 2 * with_copy > 2 * weights + weights - 9000 } else { with_copy == weights },
            "{name}"
        );
        assert_eq!(layer(&fp32, name), [data, diff, weights], "another order is no other size: {name}");
    }
    // In NHWC what the first pooling reads lies nowhere.
    assert_eq!(layer(&fp32, "conv1/bn")[0], 4 * 256 * 64 * 112 * 112);
    assert_eq!(layer(&tf32, "conv1/bn")[0], 4 * 256 * 64 * 56 * 56);
    // Images come in single precision and NCHW, with 256 labels, and become blocks of 2x2 pixels once: of three channels
    // each, rounded up to 16 in BF16, with padding for a window of 4x4 blocks.
    assert_eq!(layer(&bf16, "data")[0], 4 * 256 * (3 * 224 * 224 + 1));
    let blocks = 256 * 115 * 115;
    assert_eq!(layer(&bf16, "data_conv1_convert")[0], 2 * 16 * blocks);
    assert_eq!(layer(&tf32, "data_conv1_convert")[0], 4 * 12 * blocks);
    assert_eq!(bf16["notes"], Value::from(vec!["convolutions in BF16 in NHWC"]));
    assert_eq!(fp32["notes"], Value::from(vec!["convolutions in TF32 in NCHW"]));
    // What an H200 took of its memory for ResNet-50 v1.5, in benches/results/2026-11-23-nvidia-h200-formats.
    for (options, gib) in [("--dtype bf16", 10.4), ("--math tf32", 20.2)] {
        let model = "plan --model resnet50_v1_5 --batch 256 --synthetic --device h200 --device-memory 100GiB";
        let report = folder.json(&format!("{model} {options} --layout nhwc"));
        let arena = report["budget"]["arena"].as_f64().unwrap() / f64::from(1 << 30);
        assert!((0.97..=1.0).contains(&(arena / gib)), "{options}: {arena} of {gib} GiB");
    }
}

#[test]
fn the_order_of_a_recorded_gpu_may_be_chosen_for_the_user() {
    let folder = Folder::new();
    let plan = |options: &str| folder.json(&format!("plan --model {ALEXNET} --device h200 {options}"));
    let layout = |report: &Value| report["plan"]["kernels"][0]["kernel"]["id"]["layout"].clone();
    let note = |report: &Value| report["notes"][0].as_str().unwrap().to_owned();
    let both = plan("--math tf32 --layout auto");
    let [nchw, nhwc] = ["nchw", "nhwc"].map(|order| plan(&format!("--math tf32 --layout {order}")));
    let ms =
        [&nhwc, &nchw].map(|report| format!("{:.3} ms in ", report["plan"]["time_ms"].as_f64().unwrap()));
    let said = format!("convolutions are planned to take {}TF32 in NHWC, and {}TF32 in NCHW", ms[0], ms[1]);
    assert_eq!(note(&both), format!("--layout auto: {said}"));
    assert_eq!(
        (layout(&both), &both["plan"], &both["estimate"]),
        ("NHWC".into(), &nhwc["plan"], &Value::Null)
    );
    for (options, order, chosen) in [("--dtype bf16", "NHWC", "BF16 in NHWC"), ("", "NCHW", "FP32 in NCHW")] {
        let report = plan(&format!("{options} --layout auto"));
        let said = format!("--layout auto: {chosen}, as nothing was recorded in the other order");
        assert_eq!((layout(&report), note(&report)), (order.into(), said));
    }
    // Estimates of the order that was not chosen are none of the plan's.
    let vgg = folder.json("plan --model vgg16 --device h200 --math tf32 --layout auto");
    let own = folder.json("plan --model vgg16 --device h200 --math tf32 --layout nhwc");
    assert!(note(&vgg).ends_with(", in part by estimates"), "{}", note(&vgg));
    assert_eq!((layout(&vgg), &vgg["estimate"]), ("NHWC".into(), &own["estimate"]));
    assert!(own["estimate"]["estimated"].as_u64() > Some(100));
}

#[test]
fn whatever_is_planned_of_a_recorded_gpu_is_in_its_format() {
    let folder = Folder::new();
    let bf16 = "--device h200 --dtype bf16 --layout nhwc";
    let list = |options: &str| folder.json(&format!("plan --list {options}"))["kernels"]["rows"].clone();
    let rows = list(bf16);
    let rows = rows.as_array().unwrap();
    assert!(rows.len() > 80 && rows.iter().all(|row| row[2] == "BF16 in NHWC"), "{}", rows.len());
    let [one, both] =
        ["nhwc", "auto"].map(|order| list(&format!("--device h200 --math tf32 --layout {order}")));
    assert!(both.as_array().unwrap().len() > 2 * one.as_array().unwrap().len());
    let shapes = folder.json(&format!("plan --conv n=256,c=64,h=56,k=64,r=3,pad=1 {bf16}"));
    assert!(shapes["estimate"].is_null() && shapes["plan"]["kernels"][0]["kernel"]["id"]["dtype"] == "bf16");
    let net = format!("plan --model {ALEXNET} {bf16}");
    let joint =
        folder.json(&format!("{net} --device-memory 1100MiB --memory-policy joint --trace trace.json"));
    assert!(joint["schedule"]["arena"].as_u64() <= Some(1100 << 20), "{}", joint["schedule"]);
    assert!(text(&folder.read("trace.json")).contains("conv2"));
    assert!(folder.succeed(&format!("{net} --explain --gpus 4")).contains("images/s  efficiency"));
    // Mini-batches between those that were recorded and beyond them are estimated, and twice the samples take twice as long.
    let largest = |options: &str| {
        let report = folder.json(&format!(
            "plan --model {ALEXNET} --device h200 {options} --batch max --device-memory 2GiB"
        ));
        assert!(report["estimate"]["estimated"].as_u64() > Some(50), "{}", report["estimate"]);
        report["batches"]["largest"].as_u64().unwrap()
    };
    let [fp32, half] = ["", "--dtype bf16 --layout nhwc"].map(largest);
    assert!(4 * half > 5 * fp32, "{half} samples in BF16, {fp32} in FP32");
    for options in ["--dtype bf16 --layout nhwc", "--math tf32 --layout nhwc", "--math tf32"] {
        let time_ms = |batch: u32| {
            let plan = format!(
                "plan --model resnet50 --synthetic --device h200 --workspace-limit 8GiB --batch {batch}"
            );
            folder.json(&format!("{plan} {options}"))["plan"]["time_ms"].as_f64().unwrap()
        };
        let ratio = time_ms(512) / time_ms(256);
        assert!((1.9..=2.01).contains(&ratio), "{options}: twice the samples take {ratio} times as long");
    }
}
