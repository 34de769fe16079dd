//! Whatever is wrong, the command says so in one sentence, with an exit code, and does not panic.

use crate::fixtures::{Folder, text, without_progress};
use std::{fs, process::Output};

/// The sentence that the command gave up with; it must have every one of `parts`.
pub(crate) fn assert_refused(output: &Output, code: i32, parts: &[&str], case: &str) {
    let stderr = without_progress(&text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{case}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{case}: {stderr}");
    assert!(!stderr.contains("panicked"), "{case}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{case}: {part:?} is missing in: {stderr}");
    }
}

#[test]
fn values_of_options_and_variables_are_refused_by_name() {
    let folder = Folder::new();
    for (arguments, parts) in [
        ("--workspace-limit -1", ["--workspace-limit", "'-1'"]),
        ("--workspace-limit 64MB0", ["--workspace-limit", "'64MB0'"]),
        ("--batch 0", ["--batch", "'0'"]),
        ("--batch -4", ["--batch", "'-4'"]),
        ("--iterations 0", ["--iterations", "'0'"]),
        ("--threads 0", ["--threads", "'0'"]),
        ("--policy half", ["--policy", "'half'"]),
        ("--workspace-policy wx", ["--workspace-policy", "'wx'"]),
        ("--workspace-policy wd", ["--workspace-policy wd", "--total-workspace"]),
        ("--wd-solver ilp", ["--wd-solver ilp", "under the workspace policy wr"]),
        ("--max-error -1", ["--max-error", "'-1'"]),
        ("--device gpu", ["--device", "\"gpu\""]),
        ("--benchmark-devices cuda:1", ["--benchmark-devices", "'cuda:1'"]),
        ("--synthetic=3", ["--synthetic", "'3'"]),
    ] {
        let output = folder.run(&format!("time --model net.prototxt {arguments}"));
        assert_refused(&output, 2, &parts, arguments);
    }
    for (name, value) in [
        ("UCUDNN_BATCH_SIZE_POLICY", "power"),
        ("UCUDNN_DEFAULT_WORKSPACE_LIMIT", "-1"),
        ("UCUDNN_TOTAL_WORKSPACE_SIZE", "64MB0"),
        ("UCUDNN_BENCHMARK_DEVICES", "every"),
    ] {
        let output = folder.run_with("time --model net.prototxt", &[(name, value)]);
        assert_refused(&output, 2, &[name, value], name);
    }
    for command in [
        "init new --data imgs --like lenet --batch",
        "init new --data imgs --like lenet --size",
        "data render --classes",
    ] {
        let (_, option) = command.rsplit_once(' ').unwrap();
        assert_refused(&folder.run(&format!("{command} -4")), 2, &[option, "'-4'"], command);
    }
    assert_refused(&folder.run("time"), 2, &["--model"], "no model");
    assert_refused(&folder.run("train"), 2, &["--solver"], "no solver");
    // A command line that is no command line gets clap's advice, which is longer.
    assert_eq!(folder.run("time --modle net.prototxt").status.code(), Some(2));
}

#[test]
fn options_without_effect_are_refused_or_not_offered() {
    let folder = Folder::new();
    let shape = "--conv n=2,c=1,h=3,k=1,r=1";
    for (arguments, parts) in [
        (format!("plan {shape} --phase TEST"), ["'--conv <SHAPE>' cannot be used with", "--phase"]),
        (format!("plan {shape} --synthetic=1x3x3"), ["'--conv <SHAPE>' cannot be used with", "--synthetic"]),
        ("plan --csv list.csv --phase TEST".to_owned(), ["'--csv <FILE>' cannot be used with", "--phase"]),
        (format!("plan {shape} --seed 3"), ["unexpected argument", "--seed"]),
        ("plan --model net.prototxt --op forward".to_owned(), ["required", "--conv"]),
        (format!("profile {shape} --phase TEST"), ["'--conv <SHAPE>' cannot be used with", "--phase"]),
        (format!("profile {shape} --seed 3"), ["unexpected argument", "--seed"]),
        (format!("profile {shape} --verify"), ["unexpected argument", "--verify"]),
        (format!("profile {shape} --date today"), ["required", "--out"]),
        (format!("profile {shape} --database db --offline"), ["--offline", "no effect"]),
        ("profile --database db --merge".to_owned(), ["a value is required", "--merge"]),
        ("profile --database db --merge a --threads 1".to_owned(), ["cannot be used with", "--threads"]),
        ("profile --database db --merge a --policy all".to_owned(), ["cannot be used with", "--policy"]),
        ("profile --merge a --model net.prototxt".to_owned(), ["cannot be used with", "--model"]),
        ("profile --merge a --conv n=2,c=1,h=3,k=1,r=1".to_owned(), ["cannot be used with", "--conv"]),
        ("profile --merge a --database db --batch 7".to_owned(), ["cannot be used with", "--batch"]),
        ("plan --list --device h200 --model alexnet".to_owned(), ["cannot be used with", "--model"]),
        ("plan --list --device h200 --trace a.json".to_owned(), ["cannot be used with", "--trace"]),
        (
            "plan --list --device h200 --memory-policy keep".to_owned(),
            ["cannot be used with", "--memory-policy"],
        ),
        ("plan --list --device h200 --plot list.svg".to_owned(), ["cannot be used with", "--plot"]),
        ("plan --list --device h200 --gpus 2".to_owned(), ["cannot be used with", "--gpus"]),
        ("plan --list --device h200 --link ethernet".to_owned(), ["cannot be used with", "--link"]),
        (format!("plan {shape} --link ethernet"), ["cannot be used with", "--link"]),
        ("plan --list --device h200 --policy all".to_owned(), ["cannot be used with", "--policy"]),
        ("plan --list --device h200 --offline".to_owned(), ["cannot be used with", "--offline"]),
        ("plan --list --device h200 --threads 2".to_owned(), ["cannot be used with", "--threads"]),
        ("plan --list --device h200 --layout nhwc".to_owned(), ["TF32 in NHWC only", "none of FP32 in NHWC"]),
    ] {
        let output = folder.run(&arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{arguments}: {stderr}");
    }
    let input = "layer { name: 'data' type: 'Input' top: 'data' input_param { shape { dim: 2 dim: 1 dim: 4 dim: 4 } } }";
    fs::write(folder.path("input.prototxt"), input).unwrap();
    let export = "export --to onnx --out net.onnx --weights no.safetensors";
    for command in ["time", "plan", "profile", export] {
        let output = folder.run(&format!("{command} --model input.prototxt --synthetic=1x4x4"));
        assert_refused(
            &output,
            2,
            &["--synthetic has no effect", "input.prototxt reads no data set"],
            command,
        );
    }
}

#[test]
fn what_a_command_decides_itself_is_not_to_be_chosen() {
    let folder = Folder::new();
    folder.change_solver(&[["snapshot: 6", "snapshot: 0 snapshot_after_train: false"]]);
    let budget = "--model net.prototxt --device-memory 1GiB";
    for (arguments, parts) in [
        (format!("tune {budget} --memory-policy joint"), ["--memory-policy has no effect", "AccUDNN"]),
        (format!("tune {budget} --batch max"), ["--batch max has no effect", "`tune`"]),
        (format!("tune {budget} --offline"), ["--offline has no effect", "which measures"]),
        (format!("tune {budget} --batch 7"), ["at least 8", "--batch"]),
        (format!("tune {budget} --phase TEST"), ["--phase TEST has no effect", "a training net"]),
        (format!("time {budget} --phase TEST --memory-policy joint"), ["--memory-policy", "not trained"]),
        (format!("plan {budget} --phase TEST --memory-policy keep"), ["--memory-policy", "not trained"]),
        (
            "predict a.png --model net.prototxt --weights w.safetensors --synthetic".to_owned(),
            ["--synthetic has no effect", "which reads images"],
        ),
        ("train --solver solver.prototxt --keep 2".to_owned(), ["--keep has no effect", "no snapshots"]),
        (
            "train --solver solver.prototxt --snapshot-prefix small".to_owned(),
            ["--snapshot-prefix has no effect", "no snapshots"],
        ),
        ("train --solver solver.prototxt --base-lr 1e39".to_owned(), ["'1e39'", "above 0"]),
        ("model vgg --depth 999999991".to_owned(), ["'999999991'", "from 1 to 10016"]),
        ("model vgg --depth -1".to_owned(), ["'-1'", "from 1 to 10016"]),
    ] {
        assert_refused(&folder.run(&arguments), 2, &parts, &arguments);
    }
}

#[test]
fn nets_that_cannot_be_are_refused_with_line_and_layer() {
    for (from, to, parts) in [
        ("\"Pooling\"", "\"Poling\"", &["net.prototxt:17", "'Poling'", "Pooling"][..]),
        ("kernel_size: 5 pad: 2", "kernel_size: 50", &["net.prototxt:13", "'conv2'"]),
        ("bottom: \"pool2\"", "bottom: \"pool3\"", &["net.prototxt:21", "'ip'", "'pool3'"]),
        (
            "bottom: \"data\" top: \"conv1\"",
            "bottom: \"ip\" top: \"conv1\"",
            &["net.prototxt:8", "'conv1'", "'ip'", "cycle"],
        ),
        ("kernel_size: 3", "kernel_size: 0", &["net.prototxt:10", "kernel_size"]),
        ("num_output: 8", "num_output: 8 group: 3", &["net.prototxt:10", "group"]),
        (
            "kernel_size: 2 stride: 2",
            "kernel_size: 1 stride: 2",
            &["net.prototxt:17", "'pool2'", "start at pixel 8, outside an image of 8", "FLOOR"],
        ),
        ("type: \"ReLU\"", "type: ReLU", &["net.prototxt:12"]),
        ("bottom: \"label\" top: \"loss\"", "top: \"loss\"", &["net.prototxt:25", "'loss'"]),
        ("name: \"small\"", "name: \"small", &["net.prototxt:2"]),
    ] {
        let folder = Folder::new();
        folder.change_net(from, to);
        assert_refused(&folder.run("time --model net.prototxt --iterations 1"), 1, parts, to);
    }
    let folder = Folder::new();
    assert_refused(&folder.run("time --model no.prototxt"), 1, &["no.prototxt"], "no such net");
    let of_tests = "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 } } include { phase: TEST } }";
    folder.write("test.prototxt", of_tests);
    let parts = ["test.prototxt: none of its layers is of the phase TRAIN"];
    assert_refused(&folder.run("plan --model test.prototxt"), 1, &parts, "nothing in this phase");
    assert_refused(
        &folder.run("train --solver net.prototxt"),
        1,
        &["net.prototxt", "exactly one of net"],
        "a net for a solver",
    );
}

const CIFAR_FILES: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];

#[test]
fn damaged_data_is_refused_with_its_file() {
    let digits =
        |name: &str| std::fs::read(format!("{}/data/digits/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (images, labels) = (digits("train-images-idx3-ubyte.gz"), digits("train-labels-idx1-ubyte.gz"));
    let plain = |packed: &[u8]| {
        let mut plain = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut plain).unwrap();
        plain
    };
    let cifar = |label: u8, len: usize| [vec![label], vec![9; 3072]].concat().repeat(8)[..len].to_vec();
    let mut label_out_of_range = plain(&labels);
    label_out_of_range[8 + 3] = 77;
    for (case, files, part) in [
        (
            "a truncated gzip",
            vec![("train-images-idx3-ubyte.gz", images[..images.len() / 2].to_vec())],
            "train-images",
        ),
        (
            "a truncated IDX",
            vec![("train-images-idx3-ubyte", plain(&images)[..5000].to_vec())],
            "train-images",
        ),
        ("no IDX at all", vec![("train-images-idx3-ubyte", b"images".to_vec())], "train-images"),
        ("no data", vec![("readme", b"nothing".to_vec())], "set"),
        ("a truncated CIFAR", CIFAR_FILES.map(|name| (name, cifar(1, 5000))).to_vec(), "data_batch_1.bin"),
        ("a CIFAR of one file", vec![("data_batch_1.bin", cifar(1, 3073))], "of which 1 are there"),
        (
            "a label out of range in CIFAR",
            CIFAR_FILES.map(|name| (name, cifar(11, 8 * 3073))).to_vec(),
            "data_batch_1.bin",
        ),
        (
            "a label out of range in IDX",
            vec![
                ("train-images-idx3-ubyte", plain(&images)),
                ("train-labels-idx1-ubyte", label_out_of_range),
            ],
            "77",
        ),
    ] {
        let folder = Folder::new();
        folder.write("set/empty", "");
        std::fs::remove_file(folder.path("set/empty")).unwrap();
        for (name, contents) in files {
            folder.write(&format!("set/{name}"), contents);
        }
        if case.contains("gzip") || case.contains("a truncated IDX") || case.contains("at all") {
            folder.write("set/train-labels-idx1-ubyte.gz", &labels);
        }
        let net = text(&folder.read("net.prototxt"));
        let (before, after) = net.split_once("source: \"").unwrap();
        let (_, after) = after.split_once('"').unwrap();
        folder.write("net.prototxt", format!("{before}source: \"set\"{after}"));
        assert_refused(&folder.run("time --model net.prototxt --iterations 1"), 1, &[part], case);
    }
}

#[test]
fn limits_that_nothing_fits_name_the_smallest_that_would() {
    let output = Folder::new().run("time --model net.prototxt --max-error 1e-12");
    assert_refused(&output, 1, &["conv1", "1e-12"], "an accuracy that nothing has");
}

#[test]
fn snapshots_that_do_not_fit_are_refused() {
    let folder = Folder::new();
    folder.succeed("train --solver solver.prototxt --snapshot-prefix small --max-iter 2 --no-test");
    let (weights, state) = ("small_iter_2.safetensors", "small_iter_2.solverstate.safetensors");
    let train = "train --solver solver.prototxt --no-snapshot --no-test";
    let resume = format!("{train} --snapshot {state}");
    assert_refused(
        &folder.run(&format!("{resume} --max-iter 2")),
        1,
        &[state, "iteration 2"],
        "nothing left to do",
    );
    assert_refused(
        &folder.run(&format!("{train} --snapshot {weights}")),
        1,
        &[weights],
        "weights for a state",
    );
    assert_refused(&folder.run(&format!("{train} --snapshot none")), 1, &["none"], "no such file");

    let whole = folder.read(weights);
    folder.write(weights, &whole[..whole.len() - 5]);
    assert_refused(&folder.run(&resume), 1, &[weights], "truncated weights");
    assert_refused(&folder.run(&format!("{train} --weights {weights}")), 1, &[weights], "truncated weights");
    let test = format!("test --model net.prototxt --weights {weights} --iterations 1");
    assert_refused(&folder.run(&test), 1, &[weights], "truncated weights");
    folder.write(weights, &whole);
    let half = folder.read(state);
    folder.write("half", &half[..half.len() / 2]);
    assert_refused(&folder.run(&format!("{train} --snapshot half")), 1, &["half"], "truncated state");

    folder.change_net("num_output: 16", "num_output: 12");
    assert_refused(&folder.run(&resume), 1, &[state, "\"small\""], "the state of another net");
    assert_refused(
        &folder.run(&format!("{train} --weights {weights}")),
        1,
        &[weights, "conv2"],
        "another net's weights",
    );
    assert_refused(&folder.run(&test), 1, &[weights, "conv2"], "another net's weights");
}

#[test]
fn a_folder_that_cannot_be_is_refused_before_training() {
    let folder = Folder::new();
    let output = folder.run("train --solver solver.prototxt --snapshot-prefix net.prototxt/small");
    assert_refused(&output, 1, &["net.prototxt"], "a file where a folder should be");
    assert!(!text(&output.stdout).contains("Iteration"), "{output:?}");
}

#[test]
fn a_training_that_diverges_says_so() {
    let folder = Folder::new();
    let solver = text(&folder.read("solver.prototxt")).replace("base_lr: 0.05", "base_lr: 1e30");
    folder.write("solver.prototxt", solver);
    let output = folder.run("train --solver solver.prototxt --no-snapshot --no-test");
    assert_refused(&output, 1, &["diverged"], "a huge rate");
}

#[test]
fn what_a_command_reads_is_not_written_over() {
    let folder = Folder::new();
    folder.succeed("train --solver solver.prototxt --no-test --max-iter 6 --snapshot-prefix small");
    let net = folder.read("net.prototxt");
    for command in [
        "time --model net.prototxt --synthetic --trace ./net.prototxt",
        "profile --model net.prototxt --out net.prototxt",
        "export --model net.prototxt --weights small_iter_6.safetensors --to onnx --out net.prototxt",
    ] {
        let output = folder.run(command);
        assert_refused(&output, 1, &["net.prototxt: it is read, and not written over"], command);
        assert!(folder.read("net.prototxt") == net, "{command}");
    }
}
