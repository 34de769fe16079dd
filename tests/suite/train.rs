//! `train`: its output, policies, snapshots.

use crate::bad_input::assert_refused;
use crate::fixtures::{Folder, digits_folder, png, text};
use serde_json::Value;
use std::fs;

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
    // Time and rate of the last line are those of iterations, without tests.
    let report = folder.json(&format!("{TRAIN} --batch 100"));
    let (summary, last) = (&report["summary"], report["steps"].as_array().unwrap().last().unwrap());
    assert_eq!(summary["seconds"], last["seconds"]);
    let images = summary["seconds"].as_f64().unwrap() * summary["images_per_s"].as_f64().unwrap();
    assert!((images - 1200.0).abs() < 1e-6, "{images}");
}

const RESUME: &str = "--snapshot snapshots/small_iter_6.solverstate.safetensors";
const STATE: &str = "snapshots/small_iter_6.solverstate.safetensors";

/// What the header says of the snapshot's plan.
fn plan_note(report: &Value) -> String {
    let notes = report["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap());
    let found: Vec<&str> = notes.filter(|note| note.starts_with("the snapshot")).collect();
    assert_eq!(found.len(), 1, "{}", report["notes"]);
    found[0].to_owned()
}

fn configurations(report: &Value) -> Vec<&Value> {
    report["plan"]["kernels"].as_array().unwrap().iter().map(|kernel| &kernel["division"]).collect()
}

/// Whatever is measured when, the plan that a training began with is the plan that it goes on with.
#[test]
fn a_resumed_training_goes_on_bit_by_bit() {
    for options in ["", "--policy all --workspace-limit 100KiB", "--total-workspace 300KiB"] {
        let folder = Folder::new();
        let whole = folder.json(&format!("{TRAIN} {options}"));
        let weights = folder.read("snapshots/small_iter_12.safetensors");
        let outputs = |report: &Value| report["tests"].as_array().unwrap().last().unwrap()["outputs"].clone();
        // What was typed the first time need not be typed again, but may.
        for options in ["", options] {
            let resumed = folder.json(&format!("{TRAIN} {RESUME} {options}"));
            assert_eq!((losses(&whole, 6).len(), losses(&whole, 6)), (6, losses(&resumed, 0)));
            assert!(weights == folder.read("snapshots/small_iter_12.safetensors"), "the weights differ");
            assert_eq!(outputs(&whole), outputs(&resumed));
            assert_eq!(configurations(&whole), configurations(&resumed));
            assert!(
                plan_note(&resumed).ends_with("nothing is measured: training resumes bit-exactly under it")
            );
        }
        let text = folder.succeed(&format!("{TRAIN} {RESUME}"));
        assert!(text.contains("\n  note        the snapshot's plan is used"), "{text}");
    }
}

#[test]
fn a_resumed_training_may_be_planned_anew_and_then_says_so() {
    let folder = Folder::new();
    let whole = folder.json(&format!("{TRAIN} --workspace-limit 300KiB"));
    for (options, reason) in [
        ("--policy undivided", "it was made with powerOfTwo, wr 300 KiB, not with undivided, wr 300 KiB"),
        (
            "--workspace-limit 200KiB",
            "it was made with powerOfTwo, wr 300 KiB, not with powerOfTwo, wr 200 KiB",
        ),
        ("--batch 4", "it is for other convolutions or another mini-batch"),
        ("--threads 1", "it was made on another device"),
    ] {
        let resumed = folder.json(&format!("{TRAIN} {RESUME} --no-test {options}"));
        let note = plan_note(&resumed);
        assert!(note.starts_with(&format!("the snapshot's plan is not used, as {reason}")), "{note}");
        assert!(note.ends_with("its rounding may differ"), "{note}");
        assert_eq!(resumed["steps"].as_array().unwrap().len(), 6, "{options}");
        if options != "--batch 4" {
            assert_close(&losses(&whole, 6), &losses(&resumed, 0));
        }
    }
}

#[test]
fn a_snapshot_without_a_plan_is_still_good_and_one_with_a_damaged_plan_is_not() {
    let folder = Folder::new();
    let whole = folder.json(&format!("{TRAIN} --no-test"));
    let state = folder.read(STATE);
    folder.write(STATE, with_plans(&state, None));
    let resumed = folder.json(&format!("{TRAIN} --no-test {RESUME}"));
    assert_close(&losses(&whole, 6), &losses(&resumed, 0));
    assert!(plan_note(&resumed).starts_with("the snapshot has no plan"), "{resumed}");

    folder.write(STATE, with_plans(&state, Some("{\"device\": 3}")));
    let output = folder.run(&format!("{TRAIN} {RESUME}"));
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    let sentence = format!("error: {STATE} is not a complete snapshot: its plans are damaged (");
    assert!(stderr.starts_with(&sentence), "{stderr}");
}

/// A solver state with other plans, or none, as a file of an earlier version has none.
fn with_plans(state: &[u8], plans: Option<&str>) -> Vec<u8> {
    let (length, rest) = state.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let metadata = header["__metadata__"].as_object_mut().unwrap();
    metadata.remove("plans").expect("a snapshot has plans");
    metadata.remove("crc32_header").expect("a snapshot of today has a checksum of its header");
    metadata.extend(plans.map(|plans| ("plans".to_owned(), plans.into())));
    let mut header = header.to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes(), &header[..], data].concat()
}

/// What is said at the start is what is so.
#[test]
fn a_training_that_resumes_otherwise_says_so() {
    let folder = Folder::new();
    folder.json(&format!("{TRAIN} --no-test"));
    let solver = text(&folder.read("solver.prototxt"));
    let net = text(&folder.read("net.prototxt"));
    for (file, from, to, change) in [
        ("solver.prototxt", "base_lr: 0.05", "base_lr: 0.04", "resume bit-exactly: the learning rate"),
        ("net.prototxt", "scale: 0.00390625", "scale: 0.0039", "resume bit-exactly: layer 'data'"),
        (
            "net.prototxt",
            "name: \"data\"",
            "name: \"digits\"",
            "data start from the beginning: digits/TRAIN; there is a position",
        ),
    ] {
        let text = if file == "net.prototxt" { &net } else { &solver };
        assert!(text.contains(from));
        folder.write(file, text.replacen(from, to, 1));
        let resumed = folder.json(&format!("{TRAIN} {RESUME} --no-test"));
        assert!(plan_note(&resumed).ends_with("is used, nothing is measured"), "{}", resumed["notes"]);
        let notes = resumed["notes"].to_string();
        assert!(notes.contains("not as when the snapshot was written") && notes.contains(change), "{notes}");
        folder.write(file, text);
    }
}

#[test]
fn snapshots_of_an_earlier_training_are_said_at_the_start() {
    let folder = Folder::new();
    let notes = |arguments: &str| folder.json(&format!("{TRAIN} --no-test {arguments}"))["notes"].to_string();
    assert!(!notes("--max-iter 8").contains("earlier training"));
    let there = "snapshots/small_iter_6 to 8 are there from an earlier training";
    assert!(notes("").contains(there));
    assert!(notes(RESUME).contains("snapshots/small_iter_8 to 12 are there"));
    let unsaved = folder.json("train --solver solver.prototxt --no-snapshot --no-test");
    assert!(!unsaved["notes"].to_string().contains("earlier training"));
}

#[test]
fn the_end_that_is_typed_is_the_end_of_the_rate() {
    let folder = Folder::new();
    let solver = text(&folder.read("solver.prototxt"));
    let poly = solver.replace("\"inv\" gamma: 0.01 power: 0.75", "\"poly\" power: 1");
    assert!(poly.contains("max_iter: 12"));
    folder.write("solver.prototxt", poly.replace("max_iter: 12", ""));
    assert_refused(&folder.run(TRAIN), 2, &["solver.prototxt has no max_iter above 0", "--epochs"], "no end");
    assert_eq!(losses(&folder.json(&format!("{TRAIN} --no-test --max-iter 3")), 0).len(), 3);
    folder.write("solver.prototxt", poly);
    let train = |options: &str| {
        let report = folder.json(&format!("{TRAIN} --no-test {options}"));
        let steps = report["steps"].as_array().unwrap().clone();
        steps.iter().map(|step| step["lr"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let expected = |first: u32, last: u32| {
        (first..last).map(|i| 0.05 * (1.0 - f64::from(i) / f64::from(last))).collect::<Vec<_>>()
    };
    let assert_rates = |found: &[f64], expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-6;
        assert!(found.iter().zip(expected).all(near), "{found:?} is not {expected:?}");
    };
    assert_rates(&train("--max-iter 6"), &expected(0, 6));
    assert_rates(&train("--max-iter 20"), &expected(0, 20));
    assert_rates(&train(""), &expected(0, 12));
    assert_rates(&train(&format!("{RESUME} --max-iter 24")), &expected(6, 24));
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

/// Averages over a thousand iterations are of another net than the one that is tested after some tens.
#[test]
fn batch_norm_that_tests_with_slow_averages_is_warned_of() {
    let folder = Folder::new();
    let relu = "layer { name: \"relu1\"";
    let norm = "layer { name: \"bn\" type: \"BatchNorm\" bottom: \"conv1\" top: \"conv1\" }";
    folder.change_net(relu, &format!("{norm}\n{relu}"));
    let train = "train --solver solver.prototxt --no-snapshot --max-iter 3";
    let warning = text(&folder.run(train).stderr);
    assert!(
        warning.contains("averages over about 1000 iterations") && warning.lines().count() == 1,
        "{warning}"
    );
    assert!(warning.contains("`moving_average_fraction: 0.9` in batch_norm_param"), "{warning}");
    assert_eq!(text(&folder.run(&format!("{train} --no-test")).stderr), "");
    let fast = norm.replace(" }", " batch_norm_param { moving_average_fraction: 0.5 } }");
    folder.change_net(norm, &fast);
    assert_eq!(text(&folder.run(train).stderr), "");
}

/// Momentum has the shapes of the weights: a test of it would find an accuracy, but not the net's.
#[test]
fn a_solver_state_is_not_taken_for_weights_nor_the_other_way_round() {
    let folder = Folder::new();
    folder.json(&format!("{TRAIN} --no-test"));
    let weights = "snapshots/small_iter_6.safetensors";
    for command in ["train --solver solver.prototxt --no-snapshot", "test --model net.prototxt"] {
        let output = folder.run(&format!("{command} --weights {STATE}"));
        let sentence = format!("{STATE} is a solver state (the momentum of a training), not weights");
        assert_refused(&output, 1, &[&sentence], command);
    }
    let output = folder.run(&format!("{TRAIN} --snapshot {weights}"));
    assert_refused(&output, 1, &[&format!("{weights} holds weights, not a solver state")], "weights");
    let output = folder.run("test --model net.prototxt --weights net.prototxt");
    assert_refused(&output, 1, &["net.prototxt", "neither a safetensors file"], "a net for weights");
}

/// Before anything is measured, and not when the first snapshot is due.
#[test]
fn a_place_where_no_snapshot_can_be_written_is_refused_at_once() {
    let folder = Folder::new();
    folder.succeed("train --solver solver.prototxt --snapshot-prefix new/folder/ --no-test --max-iter 2");
    assert!(folder.path("new/folder/_iter_2.solverstate.safetensors").is_file());
    for prefix in ["w".repeat(220), "/proc/self/small".to_owned(), "net.prototxt/small".to_owned()] {
        let arguments = format!("train --solver solver.prototxt --snapshot-prefix {prefix} --database db");
        let output = folder.run(&arguments);
        assert_refused(&output, 1, &["no snapshot can be written as", &prefix], &prefix);
        assert!(
            output.stdout.is_empty() && !folder.path("db").exists(),
            "nothing is measured before: {output:?}"
        );
    }
}

/// An image that cannot be read ends a training, but what was learned until then is not lost.
#[test]
fn an_error_on_the_way_leaves_a_snapshot() {
    let folder = Folder::new();
    let mut list = String::new();
    for index in 0..8u8 {
        let pixel = |x, y| [((x * 31) ^ (y * 17)) as u8 ^ index.wrapping_mul(53)];
        folder.write(&format!("images/{index}.png"), png(8, pixel));
        list += &format!("{index}.png {}\n", index % 2);
    }
    folder.write("list.txt", &list);
    folder.change_net("type: \"Data\"", "type: \"ImageData\"");
    let net = text(&folder.read("net.prototxt"));
    let (before, after) = net.split_once("data_param {").unwrap();
    let (_, after) = after.split_once('}').unwrap();
    let data =
        "image_data_param { source: \"list.txt\" root_folder: \"images/\" batch_size: 2 is_color: false }";
    folder.write("net.prototxt", format!("{before}{data}{after}"));
    // The same measurements make the same plan, and that the same bits.
    let whole = folder.json(&format!("{TRAIN} --no-test --database measured"));
    let weights = folder.read("snapshots/small_iter_12.safetensors");

    let good = folder.read("images/5.png");
    let train =
        "train --solver solver.prototxt --no-test --snapshot-prefix snapshots/other --database measured";
    let state = "snapshots/other_iter_2.solverstate.safetensors";
    let sentence = format!("; --snapshot {state} resumes from there");
    for (damage, reason) in [
        (Some(&b"no image"[..]), "neither JPEG nor PNG"),
        (Some(&good[..good.len() / 2]), "the PNG image is truncated"),
        (None, "No such file"),
    ] {
        fs::remove_file(folder.path("images/5.png")).unwrap();
        damage.into_iter().for_each(|bytes| folder.write("images/5.png", bytes));
        let parts = ["layer 'data'", "images/5.png (list.txt:6): ", reason, sentence.as_str()];
        assert_refused(&folder.run(train), 1, &parts, reason);
        folder.write("images/5.png", &good);
    }
    // Labels are known before.
    folder.write("list.txt", list.replace("7.png 1", "7.png 10"));
    let output = folder.run(&format!("{TRAIN} --database db"));
    let parts =
        ["layer 'loss': ", "images/7.png (list.txt:8): label 10 is out of range, the classes are 0 to 9"];
    assert_refused(&output, 1, &parts, "a label out of range");
    assert!(!folder.path("db").exists(), "nothing is measured before: {output:?}");
    folder.write("list.txt", &list);
    let resumed = folder.json(&format!("{train} --snapshot {state}"));
    assert_eq!(losses(&whole, 2), losses(&resumed, 0));
    assert!(weights == folder.read("snapshots/other_iter_12.safetensors"), "the weights differ");
}

/// The message that a test's data are missing advises it.
#[test]
fn synthetic_images_stand_for_those_of_tests_alone() {
    let folder = Folder::new();
    folder.change_net(&digits_folder(), "nowhere");
    let data = "layer {\n  name: \"data\" type: \"Data\" top: \"data\" top: \"label\"";
    let dummy = "layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' include { phase: TRAIN }
        dummy_data_param { shape { dim: 8 dim: 1 dim: 8 dim: 8 } shape { dim: 8 } } }";
    folder.change_net(data, &format!("{dummy}\n{data} include {{ phase: TEST }}"));
    let train = "train --solver solver.prototxt --no-snapshot --max-iter 1 --policy undivided";
    let advice = "(--synthetic replaces the data with synthetic images)";
    assert_refused(&folder.run(train), 1, &["cannot read nowhere", advice], "no data");
    let report = folder.json(&format!("{train} --synthetic=1x8x8"));
    assert_eq!(report["net"]["test_data"][0]["source"], "synthetic images (--synthetic)");
}

/// The weights are huge, but numbers. What was saved before stays, even if no more than one is to be kept.
#[test]
fn a_training_that_diverges_leaves_a_snapshot_besides_the_last_one() {
    let folder = Folder::new();
    folder.json("train --solver solver.prototxt --no-test --snapshot-prefix small --max-iter 2");
    let solver = text(&folder.read("solver.prototxt")).replace("base_lr: 0.05", "base_lr: 1e30");
    folder.write("solver.prototxt", solver);
    let state = "small_iter_2.solverstate.safetensors";
    let output = folder.run(&format!(
        "train --solver solver.prototxt --no-test --snapshot-prefix small --keep 1 --snapshot {state}"
    ));
    let sentence = "; what small_iter_3.solverstate.safetensors holds may be spoiled already";
    assert_refused(&output, 1, &["diverged", sentence], "a huge rate");
    assert!(folder.path(state).exists() && folder.path("small_iter_3.solverstate.safetensors").exists());
}
