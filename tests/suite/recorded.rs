//! `plan` from what was recorded on another machine.

use crate::{
    fixtures::Folder,
    plan::{ALEXNET, RECORDED, numbers, recorded, refused},
};
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
    refused(&folder, &recorded("--batch 5000"), &["conv1 Forward", "micro-batch 5000", "up to 256 samples"]);
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
    let nhwc = "plan --model net.prototxt --layout nhwc --dtype bf16 --device h200";
    refused(&folder, nhwc, &["h200", "FP32 in NCHW only, and none of BF16 in NHWC"]);
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
