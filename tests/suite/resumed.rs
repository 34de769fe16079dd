//! Which snapshots there are, and trainings that go on from them.

use crate::bad_input::assert_refused;
use crate::fixtures::{Folder, text};
use serde_json::Value;
use std::{fs, process::Stdio, thread::sleep, time::Instant};

/// The weights at the end, and all lines of the log but what depends on time, as the facts of a training.
fn facts(folder: &Folder, prefix: &str) -> (Vec<u8>, Vec<Value>) {
    let log = text(&folder.read(&format!("{prefix}.jsonl")));
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut lines: Vec<Value> = lines.filter(|line| line["kind"] != "manifest").collect();
    for line in &mut lines {
        line["images_per_s"] = Value::Null;
        line["seconds"] = Value::Null;
        line["path"] = Value::Null;
    }
    // Whether the snapshot of the best test stands before or after that test depends on where it was resumed.
    lines.sort_by_key(|line| (line["iteration"].as_u64(), line["kind"].to_string()));
    (folder.read(&format!("{prefix}_iter_40.safetensors")), lines)
}

/// As `.ci/kill-and-resume`, which does it many times.
#[test]
fn a_training_that_is_killed_again_and_again_is_the_one_that_was_not() {
    let folder = Folder::new();
    folder.change_solver(&[["snapshot: 6", "snapshot: 3"], ["display: 1", "display: 1 average_loss: 4"]]);
    let arguments = |prefix: &str| {
        format!(
            "train --solver solver.prototxt --max-iter 40 --snapshot-prefix {prefix} --log {prefix}.jsonl --resume --keep 2 \
             --database measured"
        )
    };
    // The first measures, and all others run under the same plan.
    let start = Instant::now();
    folder.succeed(&arguments("first"));
    let whole = facts(&folder, "first");
    let longest = start.elapsed();
    for kill in 1..=6 {
        let mut child =
            folder.command(&arguments("killed")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        sleep(longest.mul_f64(0.13 * f64::from(kill)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // The second time there is nothing left to do but its last test, and that changes nothing.
    for _ in 0..2 {
        folder.succeed(&arguments("killed"));
        let killed = facts(&folder, "killed");
        let differing = killed.1.iter().zip(&whole.1).find(|(killed, whole)| killed != whole);
        assert_eq!((killed.1.len(), differing), (whole.1.len(), None), "lines of the logs");
        assert!(killed.0 == whole.0, "the weights differ");
    }
}

#[test]
fn the_newest_snapshot_that_is_whole_is_resumed_and_a_damaged_one_is_named() {
    let folder = Folder::new();
    let train = "train --solver solver.prototxt --snapshot-prefix s/small --no-test";
    let begun = folder.succeed(&format!("{train} --resume"));
    assert!(begun.contains("note        there is no snapshot s/small_iter_N to resume from"), "{begun}");
    let expected = folder.read("s/small_iter_12.safetensors");
    let state = folder.read("s/small_iter_12.solverstate.safetensors");
    let counted = b"{\\\"iteration\\\":1";
    let mut miscounted = state.clone();
    let at =
        state.windows(counted.len()).position(|bytes| bytes == counted).expect("it counts 12 iterations");
    miscounted[at + counted.len()] = b'0';
    for (name, damaged) in
        [("safetensors", &expected[..expected.len() / 2]), ("solverstate.safetensors", &miscounted)]
    {
        let name = format!("small_iter_12.{name}");
        folder.write(&format!("s/{name}"), damaged);
        let output = folder.run(&format!("{train} --resume"));
        let complained = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{complained}");
        assert!(complained.starts_with("warning: ") && complained.contains(&name), "{complained}");
        assert!(complained.ends_with("; an earlier snapshot is looked for\n"), "{complained}");
        let said = text(&output.stdout);
        assert!(
            said.contains("\nIteration 6, loss = ") && !said.contains("\nIteration 5, loss = "),
            "{said}"
        );
        assert!(folder.read("s/small_iter_12.safetensors") == expected, "it ends with the same weights");
    }
    // Weights alone are no snapshot.
    fs::remove_file(folder.path("s/small_iter_12.solverstate.safetensors")).unwrap();
    let said = folder.succeed(&format!("{train} --resume"));
    assert!(said.contains("\nIteration 6, loss = "), "{said}");
}

/// An earlier training under the prefix may have gone further than the one that is resumed.
#[test]
fn what_is_newer_but_not_so_far_is_not_resumed_in_silence() {
    let folder = Folder::new();
    let train = "train --solver solver.prototxt --snapshot-prefix s/small --no-test";
    folder.succeed(train);
    let said = folder.succeed(&format!("{train} --max-iter 6"));
    assert!(said.contains("s/small_iter_6 to 12 are there from an earlier training"), "{said}");
    let sentence = "s/small_iter_6.solverstate.safetensors was written after s/small_iter_12";
    assert_refused(&folder.run(&format!("{train} --resume")), 1, &[sentence], "it may be another's");
    fs::remove_file(folder.path("s/small_iter_12.solverstate.safetensors")).unwrap();
    let said = folder.succeed(&format!("{train} --resume"));
    let note = "note        resumes from s/small_iter_6.solverstate.safetensors at iteration 6\n";
    assert!(said.contains(note) && said.contains("\nIteration 6, loss = "), "{said}");
    let sentence =
        "s/small_iter_12.solverstate.safetensors is at iteration 12, and training ends at iteration 6";
    assert_refused(&folder.run(&format!("{train} --resume --max-iter 6")), 1, &[sentence], "it is over");
}

#[test]
fn the_last_snapshots_and_the_best_are_kept() {
    let folder = Folder::new();
    folder.change_solver(&[["snapshot: 6", "snapshot: 2"], ["test_interval: 10", "test_interval: 4"]]);
    folder.write("s/small_iter_1.safetensors", "of somebody else");
    let train = "train --solver solver.prototxt --snapshot-prefix s/small --log log.jsonl --keep 2";
    folder.succeed(train);
    let log = text(&folder.read("log.jsonl"));
    let tests = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let losses = tests.filter(|line| line["kind"] == "test").map(|line| {
        let outputs = line["outputs"].as_array().unwrap().clone();
        let loss = outputs.into_iter().find(|output| output["name"] == "loss").unwrap();
        (line["iteration"].as_u64().unwrap(), loss["values"][0].as_f64().unwrap())
    });
    // The test at the end is made after the last snapshot, and may find that this is the best.
    let best = losses.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0;
    let mut expected: Vec<u64> = vec![10, 12];
    expected.extend(Some(best).filter(|best| *best > 0 && *best < 10));
    let mut names: Vec<String> = expected
        .iter()
        .flat_map(|at| {
            [format!("small_iter_{at}.safetensors"), format!("small_iter_{at}.solverstate.safetensors")]
        })
        .chain(["small_iter_1.safetensors".to_owned()])
        .collect();
    names.sort();
    assert_eq!(folder.snapshots(), names);

    // Nor is a snapshot of this one removed by another that resumes from elsewhere.
    let other = "train --solver solver.prototxt --snapshot-prefix other";
    folder.succeed(other);
    folder.succeed(
        &format!("{train} --max-iter 14 --snapshot other_iter_12.solverstate.safetensors")
            .replace("log.", "b."),
    );
    assert!(names.iter().all(|name| folder.snapshots().contains(name)), "{:?}", folder.snapshots());
    // One that resumes from there removes them, however that is spelt.
    let snapshot = "./s/small_iter_12.solverstate.safetensors";
    folder.succeed(&format!("{train} --max-iter 14 --no-test --snapshot {snapshot}"));
    assert!(!folder.path("s/small_iter_10.safetensors").exists(), "{:?}", folder.snapshots());
}

/// One that began anew under the same prefix has replaced some of the snapshots there.
#[test]
fn those_of_a_training_before_are_not_removed_by_one_that_resumes() {
    let folder = Folder::new();
    folder.change_solver(&[["snapshot: 6", "snapshot: 2"]]);
    let train = "train --solver solver.prototxt --snapshot-prefix s/small --no-test";
    folder.succeed(&format!("{train} --seed 8 --max-iter 3"));
    folder.succeed(&format!("{train} --max-iter 4"));
    let snapshot = "s/small_iter_4.solverstate.safetensors";
    folder.succeed(&format!("{train} --max-iter 6 --keep 1 --snapshot {snapshot}"));
    let of = |at: u32| {
        [format!("small_iter_{at}.safetensors"), format!("small_iter_{at}.solverstate.safetensors")]
    };
    assert_eq!(folder.snapshots(), [of(3), of(6)].concat());
}

#[test]
fn a_resumed_training_leaves_a_file_alone_that_is_no_log() {
    let folder = Folder::new();
    let train = "train --solver solver.prototxt --snapshot-prefix s/small --resume";
    for text in ["notes\nof somebody\n", "{\"kind\":\"other\"}\n"] {
        folder.write("notes.txt", text);
        let output = folder.run(&format!("{train} --log notes.txt"));
        assert!(crate::fixtures::text(&output.stderr).contains("notes.txt: it is not the log of a training"));
        assert_eq!(folder.read("notes.txt"), text.as_bytes());
    }
}

#[test]
fn a_training_ends_when_tests_get_no_better() {
    let folder = Folder::new();
    folder.change_solver(&[["test_interval: 10", "test_interval: 3"], ["max_iter: 12", "max_iter: 1000"]]);
    // So small a rate changes nothing, and no test is better than the first: each sees other data, so all the same 4
    // are made.
    let train = "train --solver solver.prototxt --snapshot-prefix s/small --base-lr 1e-30 --patience 3";
    folder.change_net("batch_size: 8", "batch_size: 100");
    let report = folder.json(train);
    let tests = report["tests"].as_array().unwrap();
    let loss = |test: &Value| {
        test["outputs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o["values"][0].as_f64().unwrap() * o["loss_weight"].as_f64().unwrap())
            .sum::<f64>()
    };
    let losses: Vec<f64> = tests.iter().map(loss).collect();
    let (before, last) = losses.split_at(losses.len() - 3);
    let best = before.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(before.last() == Some(&best) && last.iter().all(|&loss| loss >= best), "{losses:?}");
    let end = 3 * (losses.len() as u64 - 1);
    assert_eq!(report["summary"]["iterations"], end);
    assert!(folder.path(&format!("s/small_iter_{end}.solverstate.safetensors")).is_file());

    folder.change_solver(&[["test_iter: 4", ""], ["test_interval: 3", ""]]);
    let output = folder.run(train);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--patience has no effect: no test has a loss"));
}

/// The update that would have made it worse was not made, so what there was before is worth keeping.
#[test]
fn a_loss_that_is_no_number_leaves_a_snapshot_while_the_weights_are_numbers() {
    let folder = Folder::new();
    let prob = "layer { name: \"loss\" type: \"SoftmaxWithLoss\"";
    // The logarithm of what is below 0 is no number, as soon as the bias moves there.
    folder.change_net(
        prob,
        &format!("layer {{ name: \"root\" type: \"Power\" bottom: \"ip\" top: \"root\" loss_weight: 1e-9 power_param {{ power: 0.5 shift: 30 scale: 1 }} include {{ phase: TRAIN }} }}\n{prob}"),
    );
    let output = folder.run("train --solver solver.prototxt --no-test --snapshot-prefix s/small --base-lr 3 --max-iter 500 --log log.jsonl");
    let complained = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complained}");
    assert!(complained.contains("the loss is NaN at iteration "), "{complained}");
    let iteration = complained.split("at iteration ").nth(1).unwrap().split(':').next().unwrap();
    let state = format!("s/small_iter_{iteration}.solverstate.safetensors");
    assert!(complained.contains(&format!("what {state} holds may be spoiled already")), "{complained}");
    assert!(folder.path(&state).is_file());
}
