//! `time`, `plan` and `devices`.

use crate::fixtures::Folder;
use serde_json::Value;
use std::process::{Command, Stdio};

/// What stands between `before` and `after` in the only line of `report` that has both.
fn number<'a>(report: &'a str, before: &str, after: &str) -> &'a str {
    let mut found = report.lines().filter_map(|line| line.split_once(before)?.1.split_once(after));
    let (number, _) = found.next().unwrap_or_else(|| panic!("no {before}…{after} in\n{report}"));
    number
}

#[test]
fn the_text_has_caffes_lines_in_caffes_order_and_then_ours() {
    let report = Folder::new().succeed("time --model net.prototxt --iterations 3 --threads 1");
    let mut rest = report.as_str();
    for expected in [
        "microbatch time: small (TRAIN), mini-batch 8",
        "1 thread,",
        "powerOfTwo; WR, at most 16 MiB",
        "expected peak",
        "\nInitial loss: ",
        "\n*** Benchmark begins ***",
        "\nTesting for 3 iterations.",
        "\nIteration: 1 forward-backward time: ",
        "\nIteration: 3 forward-backward time: ",
        "\nAverage time per layer: ",
        "      data\tforward: ",
        "      data\tbackward: ",
        "     conv1\tforward: ",
        "      loss\tbackward: ",
        "\nAverage Forward pass: ",
        "\nAverage Backward pass: ",
        "\nAverage Forward-Backward: ",
        "\nTotal Time: ",
        "\n*** Benchmark ends ***",
        "conv1 Forward",
        "conv1 BackwardFilter",
        "conv2 BackwardData",
        "Why nothing faster:",
        "Memory by layer",
        "convolution kernels  planned ",
        "layers add up to",
        "images/s",
    ] {
        let position = rest
            .find(expected)
            .unwrap_or_else(|| panic!("{expected:?} is missing or too early in\n{report}"));
        rest = &rest[position + expected.len()..];
    }
    assert!(!report.contains("conv1 BackwardData"), "the first layer has no use for it:\n{report}");
    let total: f64 = number(&report, "Total Time: ", " ms.").parse().unwrap();
    let average: f64 = number(&report, "Average Forward-Backward: ", " ms.").parse().unwrap();
    assert!((total / 3.0 / average - 1.0).abs() < 1e-4, "{total} and {average}");
    let too_wide = report.lines().find(|line| line.chars().count() > 140);
    assert_eq!(too_wide, None);
}

#[test]
fn json_is_one_object_that_agrees_with_itself() {
    let report = Folder::new().json("time --model net.prototxt --iterations 2");
    assert_eq!((&report["command"], &report["net"]["mini_batch"]), (&"time".into(), &8.into()));
    assert_eq!(report["version"], 1);
    let [run] = &report["runs"].as_array().unwrap()[..] else { panic!("one run in {report}") };
    assert_eq!(run["iterations_ms"].as_array().unwrap().len(), 2);
    assert_eq!(run["layers"].as_array().unwrap().len(), 7);
    let kernels = run["plan"]["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 5);
    let sum = |field: &str| kernels.iter().map(|kernel| kernel[field].as_f64().unwrap()).sum::<f64>();
    let close = |a: f64, b: &Value| assert!((a - b.as_f64().unwrap()).abs() <= 1e-9 * a.abs(), "{a} and {b}");
    close(sum("planned_ms"), &run["plan"]["time_ms"]);
    close(sum("measured_ms"), &run["kernels_measured_ms"]);
    assert!(kernels.iter().all(|kernel| kernel["measured_ms"].as_f64().unwrap() > 0.0));
    assert!(kernels.iter().all(|kernel| kernel["gain"].as_f64().unwrap() >= 1.0), "a plan is never worse");
    assert!(report["comparison"].is_null());
}

#[test]
fn compare_runs_the_net_undivided_first() {
    let folder = Folder::new();
    let report = folder.json("time --model net.prototxt --iterations 2 --compare --workspace-limit 100KiB");
    let policies: Vec<&Value> = report["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["plan"]["options"]["batch_size_policy"])
        .collect();
    assert_eq!(policies, ["undivided", "powerOfTwo"]);
    let kernels = report["runs"][0]["plan"]["kernels"].as_array().unwrap();
    assert!(
        kernels
            .iter()
            .all(|kernel| kernel["configuration"][0]["count"] == 1 && kernel["configuration"][1].is_null()),
        "{kernels:?}"
    );
    assert_eq!(report["comparison"]["kernels"].as_array().unwrap().len(), 5);
    let losses = [0, 1].map(|run: usize| report["runs"][run]["initial_loss"].as_f64().unwrap());
    assert!((losses[0] - losses[1]).abs() < 1e-4 * losses[0], "the same net and images: {losses:?}");

    let report = folder.json("time --model net.prototxt --iterations 1 --compare --synthetic=1x8x8");
    let losses = [0, 1].map(|run: usize| report["runs"][run]["initial_loss"].as_f64().unwrap());
    assert!(
        (losses[0] - losses[1]).abs() < 1e-4 * losses[0],
        "synthetic images are there both times: {losses:?}"
    );

    let text = folder.succeed("time --model net.prototxt --iterations 1 --compare");
    assert!(text.contains("Comparison of the two, measured in the net:"), "{text}");
    let error = folder.run("time --model net.prototxt --compare --policy undivided");
    assert!(error.status.code() == Some(2) && error.stdout.is_empty(), "before anything is done: {error:?}");
}

#[test]
fn the_options_of_planning_reach_the_plan() {
    let folder = Folder::new();
    let plan =
        |arguments: &str| folder.json(&format!("plan --model net.prototxt {arguments}"))["plan"].clone();
    let wr = plan("--workspace-limit 48KiB");
    for kernel in wr["kernels"].as_array().unwrap() {
        assert!(kernel["workspace"].as_u64().unwrap() <= 48 << 10, "{kernel}");
    }
    let wd = plan("--total-workspace 300KiB --database measured");
    assert_eq!(wd["options"]["workspace_policy"], "wd");
    assert!(wd["workspace_total"].as_u64().unwrap() <= 300 << 10, "{wd}");
    assert!(
        wd["division"]["lower_bound_ms"].as_f64().unwrap() <= wd["time_ms"].as_f64().unwrap() * (1.0 + 1e-9)
    );
    let ilp = plan("--total-workspace 300KiB --database measured --wd-solver ilp");
    assert_eq!((&wd["options"]["wd_solver"], &ilp["options"]["wd_solver"]), (&"exact".into(), &"ilp".into()));
    let [exact_ms, ilp_ms] = [&wd, &ilp].map(|plan| plan["time_ms"].as_f64().unwrap());
    assert!((exact_ms - ilp_ms).abs() <= 1e-7 * exact_ms, "{exact_ms} and {ilp_ms} ms");
    let ws = plan("--workspace-policy ws --total-workspace 100KiB --policy all --max-error 1e-6");
    assert_eq!(ws["options"]["batch_size_policy"], "all");
    // One arena is the same limit for every kernel; what separate workspaces would take is said beside it.
    let wr = plan("--workspace-limit 100KiB --policy all --max-error 1e-6");
    for plan in [&wr, &ws] {
        let kernels = plan["kernels"].as_array().unwrap().iter();
        let workspaces: Vec<u64> = kernels.map(|kernel| kernel["workspace"].as_u64().unwrap()).collect();
        let [total, separate] = ["total", "separate"].map(|what| plan[format!("workspace_{what}")].as_u64());
        assert_eq!(total, workspaces.iter().max().copied());
        assert!(separate >= Some(workspaces.iter().sum()) && separate > total);
    }
    assert!(ws["kernels"].as_array().unwrap().iter().all(|kernel| {
        kernel["configuration"]
            .as_array()
            .unwrap()
            .iter()
            .all(|run| run["micro"]["max_error"].as_f64().unwrap() <= 1.1e-6)
    }));

    let limit = |arguments: &str| plan(arguments)["options"]["limit"].as_u64().unwrap() >> 20;
    assert_eq!((limit(""), limit("--batch 100"), limit("--batch 100 --workspace-limit 64MiB")), (16, 16, 64));

    let environment = [("UCUDNN_TOTAL_WORKSPACE_SIZE", "1024000"), ("UCUDNN_BATCH_SIZE_POLICY", "undivided")];
    let output = folder.run_with("plan --model net.prototxt --json", &environment);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["plan"]["options"]["batch_size_policy"], &report["plan"]["options"]["limit"]),
        (&"undivided".into(), &1_024_000.into())
    );
}

#[test]
fn the_mini_batch_the_phase_and_the_data_can_be_chosen() {
    let folder = Folder::new();
    folder.change_net("data_param {", "transform_param { crop_size: 12 }  data_param {");
    folder.change_net("transform_param { scale: 0.00390625 }", "");
    let report =
        folder.json("time --model net.prototxt --iterations 1 --batch 5 --phase test --synthetic=3x16x20");
    assert_eq!((&report["net"]["mini_batch"], &report["net"]["phase"]), (&5.into(), &"TEST".into()));
    let data = &report["net"]["data"];
    assert_eq!(
        (&data["source"], &data["shape"]),
        (&"synthetic images (--synthetic)".into(), &"3x12x12".into())
    );
    let run = &report["runs"][0];
    assert_eq!(run["plan"]["kernels"].as_array().unwrap().len(), 2, "forward only");
    assert!(run["layers"].as_array().unwrap().iter().all(|layer| layer["backward_ms"] == 0.0));
    assert!(run["update_ms"].is_null(), "{}", run["update_ms"]);
    let said = folder.succeed("time --model net.prototxt --iterations 1 --phase test --synthetic=3x16x20");
    assert!(said.contains("  whole iteration ") && !said.contains("update"), "{said}");
}

#[test]
fn what_has_no_effect_is_a_warning_and_not_an_error() {
    let folder = Folder::new();
    folder.change_net("name: \"small\"", "name: \"small\" colour: 3");
    let output = folder.run("time --model net.prototxt --iterations 1 --json");
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("warning: net.prototxt:2: ") && stderr.contains("colour"), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["warnings"].as_array().unwrap().len(), 1);
}

/// Caffe's files carry fields along: the same words of many layers are one line.
#[test]
fn warnings_that_are_alike_are_one_line() {
    let folder = Folder::new();
    let conv2 = "name: \"conv2\" type: \"Convolution\"";
    folder.change_net(
        "name: \"conv1\" type: \"Convolution\"",
        "name: \"conv1\" type: \"Convolution\" colour: 3",
    );
    folder.change_net(conv2, &format!("{conv2} colour: 4 shade: 1"));
    folder.change_net("name: \"ip\" type: \"InnerProduct\"", "name: \"ip\" type: \"InnerProduct\" colour: 5");
    folder.change_net("type: \"xavier\"", "type: \"xavier\" std: 0.03");
    let output = folder.run("plan --model net.prototxt --policy undivided --json");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = stderr.lines().collect();
    let [colour, shade] = lines[..] else { panic!("two lines: {stderr}") };
    assert!(
        colour.contains("field 'colour' of layer 'conv1'") && colour.ends_with(" and 2 more like it"),
        "{stderr}"
    );
    assert!(shade.contains("field 'shade' of layer 'conv2'") && !shade.contains("more"), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["warnings"].as_array().unwrap().len(), 4, "a machine gets them all");
}

/// The second run measures nothing: what both tell of the run itself is alike, whatever measuring took.
#[test]
fn the_expected_peak_of_a_run_does_not_depend_on_measuring() {
    let folder = Folder::new();
    let time = "time --model net.prototxt --iterations 1 --threads 1 --database db";
    let [first, second] = [0, 1].map(|_| folder.json(time)["runs"][0]["memory"].clone());
    let bytes = |memory: &Value, field: &str| memory[field].as_f64().unwrap();
    let (a, b) = (bytes(&first, "run_peak"), bytes(&second, "run_peak"));
    assert!((a - b).abs() < f64::from(16 << 20), "{first}\n{second}");
    for memory in [first, second] {
        assert!(bytes(&memory, "expected_peak") >= bytes(&memory, "run_peak"), "{memory}");
    }
}

#[test]
fn devices_are_listed_one_a_line() {
    let folder = Folder::new();
    let (text, listed) = (folder.succeed("devices"), folder.json("devices"));
    // What belongs to a device is indented below it.
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    let recorded = lines.pop().unwrap();
    assert!(recorded.starts_with("recorded") && recorded.contains("h200"), "{recorded}");
    let devices = listed["devices"].as_array().unwrap();
    assert_eq!(lines.len(), devices.len(), "{text}");
    for (line, device) in lines.iter().zip(devices) {
        assert!(line.starts_with(&format!("{}: ", device["id"].as_str().unwrap())), "{text}");
    }
    assert_eq!(devices.last().unwrap()["id"], "cpu");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_microbatch"));
    command
        .env("UCUDNN_DATABASE", "none")
        .args(["time", "--iterations", "1", "--model"])
        .arg(folder.path("net.prototxt"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_net_without_a_loss_has_a_loss_of_zero() {
    let folder = Folder::new();
    folder
        .write("net.prototxt", "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 } } }");
    let said = folder.succeed("time --model net.prototxt --iterations 1");
    assert!(said.contains("\nInitial loss: 0\n"), "{said}");
}

#[test]
fn stages_and_levels_choose_layers() {
    let folder = Folder::new();
    let conv = |name: &str, rule: &str| {
        format!(
            "layer {{ name: '{name}' type: 'Convolution' bottom: 'x' top: '{name}' include {{ {rule} }} \
             convolution_param {{ num_output: 2 kernel_size: 3 }} }}\n"
        )
    };
    let input = "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: [2, 3, 8, 8] } } }\n";
    let net = [input, &conv("always", ""), &conv("staged", "stage: 'fine'"), &conv("high", "min_level: 2")];
    folder.write("staged.prototxt", net.concat());
    for (options, expected) in [
        ("", &["always"][..]),
        ("--stage fine", &["always", "staged"]),
        ("--stage coarse --stage fine --level 2", &["always", "staged", "high"]),
    ] {
        let plan = format!("plan --model staged.prototxt --phase TEST --policy undivided {options}");
        let report = folder.json(&plan);
        let kernels = report["plan"]["kernels"].as_array().unwrap().iter();
        let names: Vec<&str> = kernels.map(|kernel| kernel["kernel"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{options}");
    }
    let of_a_shape = folder.run("plan --conv n=1,c=1,h=4,k=1,r=3 --stage fine");
    assert_eq!(of_a_shape.status.code(), Some(2), "a shape has no stage");
}
