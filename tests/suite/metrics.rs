//! What a training writes for machines, what is drawn of it, and what its weights say of images.

use crate::bad_input::assert_refused;
use crate::fixtures::{Folder, digits_folder, png, root, text};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::{fs, io::Read};

const TRAIN: &str = "train --solver solver.prototxt --snapshot-prefix small --database measured";

fn lines(folder: &Folder, log: &str) -> Vec<Value> {
    let text = text(&folder.read(log));
    assert!(text.ends_with('\n'), "the last line is whole");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What does not depend on time and place, of all lines but manifests.
fn facts(folder: &Folder, log: &str) -> Vec<Value> {
    let mut lines = lines(folder, log);
    lines.retain(|line| line["kind"] != "manifest");
    lines.iter_mut().for_each(|line| line["images_per_s"] = Value::Null);
    lines.iter_mut().for_each(|line| line["seconds"] = Value::Null);
    lines
}

#[test]
fn a_log_begins_with_its_manifest_and_has_all_that_is_said() {
    let folder = Folder::new();
    let report = folder.json(&format!("{TRAIN} --log log.jsonl"));
    let lines = lines(&folder, "log.jsonl");
    let manifest = &lines[0];
    assert_eq!(
        (&manifest["kind"], &manifest["seed"], &manifest["iteration"]),
        (&"manifest".into(), &7.into(), &0.into())
    );
    assert!(manifest["command"].as_array().unwrap().contains(&"--log".into()), "{manifest}");
    assert_eq!((&manifest["run"]["device"], &manifest["plan"]), (&report["device"], &report["plan"]));
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    let displayed: Vec<&Value> = of("display").iter().map(|line| &line["loss"]).collect();
    let expected: Vec<&Value> =
        report["steps"].as_array().unwrap().iter().map(|step| &step["loss"]).collect();
    assert_eq!((displayed.len(), displayed), (12, expected));
    let images = report["net"]["data"]["images"].as_f64().unwrap();
    assert_eq!(of("display")[11]["epoch"], 12.0 * 8.0 / images);
    let tested: Vec<&Value> = of("test").iter().map(|line| &line["outputs"]).collect();
    let expected: Vec<&Value> =
        report["tests"].as_array().unwrap().iter().map(|test| &test["outputs"]).collect();
    assert_eq!((tested.len(), tested), (3, expected));
    let saved: Vec<u64> = of("snapshot").iter().map(|line| line["iteration"].as_u64().unwrap()).collect();
    assert_eq!(saved, [6, 12]);
    assert_eq!(of("snapshot")[1]["seconds"], of("display")[11]["seconds"], "of iterations");

    let output = folder.run(&format!("{TRAIN} --log log.jsonl"));
    let complained = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        complained.contains("log.jsonl: it is the log of another training already; only a resumed one"),
        "{complained}"
    );
    let measured = folder.run(&format!("{TRAIN} --log measured"));
    assert_refused(&measured, 1, &["cannot write measured: is a directory"], "a folder is no log");
    let net = folder.run(&format!("{TRAIN} --log net.prototxt"));
    assert_refused(&net, 1, &["net.prototxt: it is not the log of a training"], "a net is no log");
}

/// The lines of what is done again are not there twice, one that was cut by a kill goes, and one that was not written
/// comes.
#[test]
fn a_resumed_training_goes_on_in_its_log_without_gap_or_double_line() {
    let folder = Folder::new();
    folder.succeed(&format!("{TRAIN} --log log.jsonl"));
    let expected = facts(&folder, "log.jsonl");
    let whole = text(&folder.read("log.jsonl"));
    let snapshot = "{\"kind\":\"snapshot\",\"iteration\":6,";
    let without: String = whole.split_inclusive('\n').filter(|line| !line.starts_with(snapshot)).collect();
    for log in [whole.clone(), format!("{whole}{{\"kind\":\"disp"), without] {
        folder.write("log.jsonl", log);
        folder.succeed(&format!("{TRAIN} --log log.jsonl --snapshot small_iter_6.solverstate.safetensors"));
        assert_eq!(facts(&folder, "log.jsonl"), expected);
        let manifests: Vec<Value> =
            lines(&folder, "log.jsonl").into_iter().filter(|line| line["kind"] == "manifest").collect();
        assert_eq!(
            manifests.iter().map(|line| line["iteration"].as_u64().unwrap()).collect::<Vec<_>>(),
            [0, 6]
        );
    }
}

/// One that began with a resumed training, too, in a folder that is made for it.
#[test]
fn only_the_training_of_a_log_goes_on_in_it_and_only_once_at_a_time() {
    let folder = Folder::new();
    folder.succeed(&format!("{TRAIN} --no-test"));
    let train = "train --solver solver.prototxt --no-test --max-iter 14 --resume --log new/log.jsonl --database measured";
    // The first two begin at the same place.
    for from in ["--snapshot small_iter_12.solverstate.safetensors"; 2].into_iter().chain(["--resume"; 2]) {
        folder.succeed(&format!("{train} --snapshot-prefix small").replace("--resume", from));
        let lines = lines(&folder, "new/log.jsonl");
        let kinds: Vec<&Value> = lines[..5].iter().map(|line| &line["kind"]).collect();
        assert_eq!(kinds, ["manifest", "snapshot", "display", "display", "snapshot"]);
    }
    let refused = |prefix: &str, sentence: &str| {
        let before = folder.read("new/log.jsonl");
        let output = folder.run(&format!("{train} --snapshot-prefix {prefix}"));
        assert_refused(&output, 1, &[sentence], prefix);
        assert_eq!(folder.read("new/log.jsonl"), before);
    };
    let others = "cannot write new/log.jsonl: it is the log of a training with another snapshot prefix";
    refused("other", others);
    // However that is spelled, and wherever another one comes from.
    folder.succeed(&format!(
        "{train} --snapshot-prefix ../{}/./small",
        folder.path("").file_name().unwrap().display()
    ));
    fs::copy(
        folder.path("small_iter_6.solverstate.safetensors"),
        folder.path("mine_iter_6.solverstate.safetensors"),
    )
    .unwrap();
    refused("mine", others);
    let other = fs::File::open(folder.path("new/log.jsonl")).unwrap();
    other.try_lock().unwrap();
    refused("small", "cannot write new/log.jsonl: another training writes into it");
}

#[test]
fn the_average_loss_of_a_resumed_training_goes_on() {
    let folder = Folder::new();
    let solver = text(&folder.read("solver.prototxt")).replace("display: 1", "display: 1 average_loss: 5");
    folder.write("solver.prototxt", solver);
    let smoothed = |report: Value| -> Vec<f64> {
        let steps = report["steps"].as_array().unwrap().iter();
        steps.map(|step| step["smoothed_loss"].as_f64().unwrap()).collect()
    };
    let whole = smoothed(folder.json(TRAIN));
    let resumed = smoothed(folder.json(&format!("{TRAIN} --snapshot small_iter_6.solverstate.safetensors")));
    assert_eq!(whole[6..], resumed);
}

/// Each record is as long as it says, and they are as many as there are numbers.
#[test]
fn tensorboard_gets_every_number() {
    let folder = Folder::new();
    folder.succeed(&format!("{TRAIN} --tensorboard board"));
    let files: Vec<_> =
        fs::read_dir(folder.path("board")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    assert!(files[0].file_name().unwrap().to_str().unwrap().starts_with("events.out.tfevents."), "{files:?}");
    let bytes = fs::read(&files[0]).unwrap();
    let (mut at, mut records) = (0, 0);
    while at < bytes.len() {
        let len = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        at += 8 + 4 + len + 4;
        records += 1;
    }
    // Version and start; loss, rate and speed of 12 iterations; loss and accuracy of 3 tests.
    assert_eq!((at, records), (bytes.len(), 2 + 3 * 12 + 2 * 3));
    let has = |tag: &[u8]| bytes.windows(tag.len()).any(|window| window == tag);
    assert!(has(b"train/loss") && has(b"train/lr") && has(b"test0/accuracy"));
    let past = format!("{TRAIN} --max-iter 6 --resume --tensorboard none --log of/none.jsonl");
    assert_refused(&folder.run(&past), 1, &["training ends at iteration 6"], "past the end");
    assert!(!folder.path("none").exists() && !folder.path("of").exists());
}

#[test]
fn logs_are_drawn() {
    let folder = Folder::new();
    folder.succeed(&format!("{TRAIN} --log a.jsonl"));
    folder.succeed(&format!("{TRAIN} --log b.jsonl --base-lr 0.001"));
    let said = folder.succeed("plot a.jsonl b.jsonl --out new/folder/curves.svg");
    assert_eq!(said, "Wrote new/folder/curves.svg with 6 curves\n");
    let svg = text(&folder.read("new/folder/curves.svg"));
    for name in ["a train loss", "b train loss", "a test loss", "b test accuracy"] {
        assert!(svg.contains(name), "there is no {name}");
    }
    folder.succeed("plot a.jsonl --seconds --out seconds.svg");
    assert!(text(&folder.read("seconds.svg")).contains("seconds of training"));
    folder.succeed("plot a.jsonl --out curves.png");
    assert!(folder.read("curves.png").starts_with(b"\x89PNG"));
    let diverged = "{\"kind\":\"display\",\"iteration\":0,\"smoothed_loss\":null,\"outputs\":[]}\n";
    for log in ["", diverged] {
        folder.write("empty.jsonl", log);
        let output = folder.run("plot empty.jsonl --out curves.svg");
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("nothing that is a number was displayed or tested yet"));
    }
}

/// Root reads whatever it likes.
#[cfg(unix)]
#[test]
fn of_a_log_that_cannot_be_read_the_cause_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.write("log.jsonl", "{}\n");
    fs::set_permissions(folder.path("log.jsonl"), fs::Permissions::from_mode(0o200)).unwrap();
    let output = folder.run(&format!("{TRAIN} --log log.jsonl"));
    let is_root = fs::read(folder.path("log.jsonl")).is_ok();
    let cause = if is_root { "it is not the log of a training" } else { "Permission denied" };
    assert_refused(&output, 1, &["log.jsonl: ", cause], "a log without permission");
}

#[test]
fn the_rate_and_the_number_of_epochs_are_taken_from_the_command_line() {
    let folder = Folder::new();
    let report = folder.json(
        &format!("{TRAIN} --no-test --no-snapshot --epochs 1 --base-lr 0.5")
            .replace("--snapshot-prefix small ", ""),
    );
    let images = report["net"]["data"]["images"].as_u64().unwrap();
    assert_eq!(report["summary"]["iterations"], images.div_ceil(8));
    assert_eq!(report["steps"][0]["lr"], 0.5);
    // What was seen in mini-batches of another size is seen.
    folder.succeed(&format!("{TRAIN} --no-test"));
    let report = folder.json(&format!(
        "{TRAIN} --no-test --epochs 1 --batch 100 --snapshot small_iter_12.solverstate.safetensors"
    ));
    assert_eq!(report["summary"]["iterations"], 12 + (images - 12 * 8).div_ceil(100));
    let epoch = report["steps"].as_array().unwrap().last().unwrap()["epoch"].as_f64().unwrap();
    assert!((1.0..1.1).contains(&epoch), "{epoch}");
}

/// Rates change by iterations: an end that is counted in epochs may come before.
#[test]
fn a_change_of_the_rate_that_epochs_do_not_reach_is_warned_of() {
    let folder = Folder::new();
    let epoch = "train --solver solver.prototxt --no-test --no-snapshot --policy undivided --epochs 1";
    let mut policy = "lr_policy: \"inv\" gamma: 0.01 power: 0.75";
    for (other, late) in [
        ("lr_policy: \"multistep\" gamma: 0.1 stepvalue: 2 stepvalue: 4 stepvalue: 9", Some(4)),
        ("lr_policy: \"multistep\" gamma: 0.1 stepvalue: 2 stepvalue: 3", None),
        ("lr_policy: \"step\" gamma: 0.1 stepsize: 7", Some(7)),
    ] {
        folder.change_solver(&[[policy, other]]);
        policy = other;
        let sentence = late.map_or(String::new(), |late| {
            format!("warning: the learning rate changes at iteration {late}, but these epochs end at 4\n")
        });
        assert_eq!(text(&folder.run(&format!("{epoch} --batch 300")).stderr), sentence);
    }
}

/// The digits of the test set, as pixels and labels.
fn digits() -> Vec<(Vec<u8>, u8)> {
    let unpacked = |name: &str| {
        let mut bytes = Vec::new();
        let file = fs::File::open(root().join("data/digits").join(name)).unwrap();
        GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        bytes
    };
    let (images, labels) = (unpacked("t10k-images-idx3-ubyte.gz"), unpacked("t10k-labels-idx1-ubyte.gz"));
    let side = u32::from_be_bytes(images[8..12].try_into().unwrap()) as usize;
    images[16..].chunks(side * side).map(<[u8]>::to_vec).zip(labels[8..].iter().copied()).collect()
}

#[test]
fn the_whole_test_set_is_tested_once_and_every_sample_is_confused_once() {
    let folder = Folder::new();
    folder.succeed(&format!("{TRAIN} --no-test"));
    let test = "test --model net.prototxt --weights small_iter_12.safetensors --database measured";
    let digits = digits();
    for batch in [8, 7] {
        let report = folder.json(&format!("{test} --confusion --batch {batch}"));
        assert_eq!(report["iterations"], digits.len().div_ceil(batch));
        let counts = report["confusion"]["counts"].as_array().unwrap();
        let row =
            |class: usize| counts[class].as_array().unwrap().iter().map(|count| count.as_u64().unwrap());
        for class in 0..10 {
            let expected = digits.iter().filter(|(_, label)| usize::from(*label) == class).count() as u64;
            assert_eq!(row(class).sum::<u64>(), expected, "class {class}");
        }
        let right: u64 = (0..10).map(|class| row(class).nth(class).unwrap()).sum();
        let accuracy =
            report["outputs"].as_array().unwrap().iter().find(|output| output["name"] == "accuracy").unwrap();
        let share = right as f64 / digits.len() as f64;
        assert!((accuracy["values"][0].as_f64().unwrap() - share).abs() < 1e-6, "{accuracy} and {share}");
    }
    let said = folder.succeed(&format!("{test} --confusion"));
    assert!(said.contains("  recall  precision  mostly mistaken for\n"), "{said}");
    let twice = folder.json(&format!("{test} --epochs 2"));
    assert_eq!(twice["iterations"], (2 * digits.len()).div_ceil(8));
    // A head beside the classifier, and before it, is not what is counted.
    let counted = folder.json(&format!("{test} --confusion"));
    let beside = r#"layer { name: "side" type: "Power" bottom: "ip" top: "side" power_param { scale: -1 } }
layer { name: "worst" type: "Accuracy" bottom: "side" bottom: "label" top: "worst" include { phase: TEST } }
layer { name: "loss""#;
    folder.change_net("layer { name: \"loss\"", beside);
    assert_eq!(folder.json(&format!("{test} --confusion"))["confusion"], counted["confusion"]);
    // Nor is a label that the accuracy ignores.
    let ignoring = "bottom: \"ip\" bottom: \"label\" top: \"accuracy\" accuracy_param { ignore_label: 3 }";
    folder.change_net("bottom: \"ip\" bottom: \"label\" top: \"accuracy\"", ignoring);
    let mut counts = counted["confusion"]["counts"].clone();
    counts[3] = [0; 10].into();
    assert_eq!(folder.json(&format!("{test} --confusion"))["confusion"]["counts"], counts);
}

#[test]
fn images_are_predicted_one_by_one_and_by_the_folder() {
    let folder = Folder::new();
    folder.succeed(&format!("{TRAIN} --no-test --max-iter 80"));
    let digits = digits();
    let side = digits[0].0.len().isqrt() as u32;
    for (number, (pixels, _)) in digits.iter().take(21).enumerate() {
        folder.write(&format!("images/{number:02}.png"), png(side, |x, y| [pixels[(y * side + x) as usize]]));
    }
    folder.write("images/notes.txt", "no image");
    let predict = "--model net.prototxt --weights small_iter_80.safetensors --database measured";
    let output = folder.run(&format!("predict images {predict} --top 10 --json"));
    assert_eq!(text(&output.stderr), "warning: left out of images: 1 not named .jpg, .jpeg or .png\n");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let predictions = report["predictions"].as_array().unwrap();
    assert_eq!(predictions.len(), 21);
    let mut right = 0;
    for (number, prediction) in predictions.iter().enumerate() {
        assert!(prediction["image"].as_str().unwrap().ends_with(&format!("{number:02}.png")));
        let classes = prediction["classes"].as_array().unwrap();
        let shares: Vec<f64> = classes.iter().map(|class| class["probability"].as_f64().unwrap()).collect();
        assert!(shares.is_sorted_by(|a, b| a >= b) && (shares.iter().sum::<f64>() - 1.0).abs() < 1e-5);
        right += usize::from(classes[0]["class"] == digits[number].1);
    }
    assert!(right > 12, "{right} of 21 are right, where 2 would be chance");
    let one = folder.succeed(&format!("predict images/05.png {predict} --top 1"));
    let class = &predictions[5]["classes"][0]["class"];
    assert!(one.contains(&format!("images/05.png: {class} (")), "{one}");

    let refused = |image: &str, reason: &str| {
        let output = folder.run(&format!("predict {image} {predict}"));
        assert_refused(&output, 1, &[reason], image);
    };
    refused("images/99.png", "images/99.png");
    refused("images/notes.txt", "notes.txt");
    fs::remove_file(folder.path("images/notes.txt")).unwrap();
    // One row of scores for the whole mini-batch.
    folder.change_net("{ num_output: 10", "{ axis: 0 num_output: 10");
    folder.change_net("top: \"loss\"", "top: \"loss\" softmax_param { axis: 0 }");
    refused(
        "images",
        "'loss', a blob of shape 10 (10), does not have one score of each class for each image",
    );
}

#[test]
fn fewer_images_than_a_mini_batch_are_predicted_where_a_net_reshapes_it() {
    let folder = Folder::new();
    let reshape = "layer { name: \"rows\" type: \"Reshape\" bottom: \"pool2\" top: \"rows\" reshape_param { shape { dim: 8 dim: -1 } } }\n";
    folder.change_net("layer {\n  name: \"ip\"", &format!("{reshape}layer {{\n  name: \"ip\""));
    folder.change_net("bottom: \"pool2\" top: \"ip\"", "bottom: \"rows\" top: \"ip\"");
    folder.succeed(&format!("{TRAIN} --no-test --max-iter 6"));
    for name in ["a.png", "b.png"] {
        folder.write(name, png(8, |x, y| [(x * y) as u8]));
    }
    let predict =
        "--model net.prototxt --weights small_iter_6.safetensors --policy undivided --database measured";
    let both = folder.json(&format!("predict a.png b.png {predict}"));
    assert_eq!(both["predictions"][0]["classes"], both["predictions"][1]["classes"]);
}

/// Such images have one size whatever the data's is, and the first filter knows their channels.
#[test]
fn images_that_the_net_resizes_are_predicted_away_from_its_data() {
    let folder = Folder::new();
    folder.change_net("scale: 0.00390625", "scale: 0.00390625 resize: 8");
    folder.succeed(&format!("{TRAIN} --no-test --max-iter 6"));
    folder.write("image.png", png(20, |x, y| [(x * y) as u8]));
    let predict = "predict image.png --model net.prototxt --weights small_iter_6.safetensors --policy undivided --database measured";
    let beside = folder.json(predict);
    folder.change_net(&digits_folder(), "nowhere");
    let away = folder.json(predict);
    assert_eq!(
        (&away["net"]["data"]["shape"], &away["predictions"]),
        (&json!("1x8x8"), &beside["predictions"])
    );
    folder.change_net(" resize: 8", "");
    let refused = folder.run(predict);
    assert_refused(
        &refused,
        1,
        &["only its data say how large its images are: cannot read nowhere"],
        "no size",
    );
}
