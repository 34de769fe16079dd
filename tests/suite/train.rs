//! `train`: its output, policies, snapshots.

use crate::fixtures::{Folder, smallest_total};
use serde_json::Value;

const TRAIN: &str = "train --solver solver.prototxt --snapshot-prefix snapshots/small";

/// The losses that a training displayed from iteration `first` on.
fn losses(report: &Value, first: u64) -> Vec<f64> {
    let steps = report["steps"].as_array().unwrap().iter();
    steps
        .filter(|step| step["iteration"].as_u64() >= Some(first))
        .map(|step| step["loss"].as_f64().unwrap())
        .collect()
}

#[test]
fn training_displays_tests_snapshots_and_sums_up() {
    let folder = Folder::new();
    let report = folder.succeed(TRAIN);
    for expected in [
        "microbatch train: small (TRAIN), mini-batch 8",
        "seed 7",
        "Iteration 0, Testing net (#0)\n    Test net output #0: ",
        "\nIteration 0, loss = ",
        "lr = 0.05 (",
        "\nIteration 10, Testing net (#0)\n",
        "\nIteration 12, Testing net (#0)\n",
        "\nSnapshotting solver state to snapshots/small_iter_6.solverstate.safetensors\n",
        "\nTrained to iteration 12 in ",
        ", test accuracy = ",
    ] {
        assert!(report.contains(expected), "{expected:?} is missing in\n{report}");
    }
    for file in
        ["small_iter_6.safetensors", "small_iter_12.safetensors", "small_iter_12.solverstate.safetensors"]
    {
        assert!(folder.path("snapshots").join(file).is_file(), "{file}");
    }
}

#[test]
fn a_resumed_training_goes_on_bit_by_bit() {
    let folder = Folder::new();
    // The same algorithms each time, whatever their measured speed, and no test net whose plan would have a choice.
    let train = format!("{TRAIN} --no-test --policy undivided --total-workspace {}", smallest_total(&folder));
    let configurations = |report: &Value| -> Vec<String> {
        let kernels = report["plan"]["kernels"].as_array().unwrap().iter();
        kernels.map(|kernel| kernel["configuration"].to_string()).collect()
    };
    // Where two algorithms need equally little workspace, noise decides between them: only runs of one plan compare.
    let runs = (0..20).map(|_| {
        let whole = folder.json(&train);
        let weights = folder.read("snapshots/small_iter_12.safetensors");
        let resumed =
            folder.json(&format!("{train} --snapshot snapshots/small_iter_6.solverstate.safetensors"));
        (whole, weights, resumed)
    });
    let same_plan =
        |(whole, _, resumed): &(Value, _, Value)| configurations(whole) == configurations(resumed);
    let (whole, weights, resumed) = runs.into_iter().find(same_plan).expect("two runs of one plan");
    assert_eq!((losses(&whole, 6).len(), losses(&whole, 6)), (6, losses(&resumed, 0)));
    assert!(weights == folder.read("snapshots/small_iter_12.safetensors"), "the weights differ");
}

#[test]
fn every_policy_gives_the_same_losses() {
    let folder = Folder::new();
    let train = |options: &str| {
        let report =
            folder.json(&format!("train --solver solver.prototxt --no-snapshot --no-test {options}"));
        losses(&report, 0)
    };
    let reference = train("--policy undivided");
    assert_eq!(reference.len(), 12);
    for options in [
        "--policy powerOfTwo --workspace-limit 48KiB",
        "--policy all --workspace-limit 100KiB",
        "--total-workspace 300KiB",
        "--workspace-policy ws --workspace-limit 64KiB --threads 1",
    ] {
        assert_close(&reference, &train(options));
    }
}

/// Convolutions differ by their algorithms' rounding, at most 1e-4 in their results; twelve steps amplify that little.
fn assert_close(expected: &[f64], actual: &[f64]) {
    assert_eq!(expected.len(), actual.len());
    for (a, b) in expected.iter().zip(actual) {
        assert!((a - b).abs() < 2e-3 * a.abs(), "{expected:?} and {actual:?}");
    }
}

#[test]
fn weights_of_another_training_are_where_it_starts() {
    let folder = Folder::new();
    let first = folder.json(&format!("{TRAIN} --no-test"));
    let weights = "--weights snapshots/small_iter_12.safetensors";
    let second = folder.json(&format!("train --solver solver.prototxt --no-snapshot --max-iter 1 {weights}"));
    let test = |report: &Value| report["summary"]["accuracies"].clone();
    assert_eq!(test(&first), Value::Array(Vec::new()), "no test was asked for");
    assert_eq!(second["tests"][0]["iteration"], 0);
    // It begins where the other ended: at its loss on the first mini-batch, not at that of fresh weights.
    assert!(losses(&second, 0)[0] < 0.9 * losses(&first, 0)[0], "{first} {second}");
}
