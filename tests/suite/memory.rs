//! Policies for memory: runs in less of it than keeping everything takes.

use crate::bad_input::assert_refused;
use crate::fixtures::{Folder, text};
use serde_json::Value;

/// Eight convolutions with what comes between them, so that there is much to keep and little to have at once.
fn deep() -> Folder {
    let folder = Folder::new();
    let mut net = String::from(
        r#"name: "deep"
        layer { name: "data" type: "DummyData" top: "data" top: "label"
          dummy_data_param { shape { dim: 8 dim: 4 dim: 48 dim: 48 } shape { dim: 8 }
            data_filler { type: "uniform" min: -1 } data_filler { value: 3 } } }"#,
    );
    let mut bottom = "data".to_owned();
    for index in 1..=8 {
        net += &format!(
            r#"
        layer {{ name: "conv{index}" type: "Convolution" bottom: "{bottom}" top: "conv{index}"
          convolution_param {{ num_output: 8 kernel_size: 3 pad: 1 weight_filler {{ type: "msra" }} }} }}
        layer {{ name: "norm{index}" type: "BatchNorm" bottom: "conv{index}" top: "norm{index}"
          batch_norm_param {{ scale_bias: true }} }}
        layer {{ name: "relu{index}" type: "ReLU" bottom: "norm{index}" top: "norm{index}" }}"#
        );
        bottom = format!("norm{index}");
    }
    net += &format!(
        r#"
        layer {{ name: "ip" type: "InnerProduct" bottom: "{bottom}" top: "ip"
          inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
        layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}"#
    );
    folder.write("net.prototxt", net);
    folder
}

/// On the processor, and on a GPU.
const CPU: &str = "--threads 2";
const CUDA: &str = "--device cuda";

fn time(device: &str) -> String {
    format!("time --model net.prototxt --iterations 1 {device}")
}

/// What `--device-memory 4096` is refused with: the smallest budget.
fn smallest(folder: &Folder, device: &str, policy: &str) -> u64 {
    let output = folder.run(&format!("{} --device-memory 4096 --memory-policy {policy}", time(device)));
    let said = text(&output.stderr);
    assert_refused(&output, 1, &["--device-memory 4 KiB", "the smallest budget with a plan is"], policy);
    let number = said.split("with a plan is ").nth(1).and_then(|rest| rest.split(", set by").next()).unwrap();
    let exact = number.split_once('(').map_or(number, |(_, exact)| exact.trim_end_matches(" bytes)"));
    exact.parse::<planner::Bytes>().unwrap().0
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn what_does_not_fit_leaves_the_device_and_comes_back() {
    what_does_not_fit_leaves_and_comes_back_on(CPU);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_what_does_not_fit_leaves_the_device_and_comes_back() {
    what_does_not_fit_leaves_and_comes_back_on(CUDA);
}

fn what_does_not_fit_leaves_and_comes_back_on(device: &str) {
    let (folder, time) = (deep(), time(device));
    let (keep, joint) = (smallest(&folder, device, "keep"), smallest(&folder, device, "joint"));
    assert!(joint < keep * 3 / 4, "{joint} and {keep}");
    for budget in [joint, (joint + keep) / 2] {
        let report = folder.json(&format!("{time} --device-memory {budget} --trace trace.json"));
        let run = &report["runs"][0];
        let schedule = &run["schedule"];
        assert_eq!((&schedule["policy"], number(&schedule["budget"])), (&"joint".into(), budget));
        assert!(number(&run["memory"]["arena"]) <= budget, "{run}");
        let away = |field: &str| -> u64 {
            schedule["layers"].as_array().unwrap().iter().map(|layer| number(&layer[field])).sum()
        };
        assert!(away("offloaded") + away("recomputed") > 0 && away("kept") > 0, "{schedule}");
        let [planned, unlimited] =
            ["planned_ms", "unlimited_ms"].map(|field| schedule[field].as_f64().unwrap());
        assert!(planned >= unlimited * (1.0 - 1e-9), "{schedule}");
        assert_eq!(away("offloaded") > 0, schedule["copying_ms"][0].as_f64() > Some(0.0));
        let trace: Value = serde_json::from_slice(&folder.read("trace.json")).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
        assert_eq!((named("forward conv1"), named("backward conv8"), named("update")), (1, 1, 1));
        assert_eq!(schedule["actions"].as_array().unwrap().len(), events.len() - 3);
    }
    let said = folder.succeed(&format!("{time} --device-memory {joint}"));
    for part in ["Memory policy joint in", "planned ", "copies to the host", "computed again"] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    // Where everything fits with the fastest kernels, it stays, unless somebody wants to see what ours makes of it.
    for (options, is_joint) in [
        (format!("--device-memory {keep}"), true),
        (format!("--device-memory {keep} --memory-policy keep"), false),
        ("--device-memory 8GiB".to_owned(), false),
        ("--device-memory 8GiB --memory-policy joint".to_owned(), true),
    ] {
        let schedule = folder.json(&format!("{time} {options}"))["runs"][0]["schedule"].clone();
        assert_eq!(schedule["policy"] == "joint", is_joint, "{options}: {schedule}");
        assert_eq!(schedule.is_null(), !is_joint, "{options}");
    }
}

#[test]
fn every_policy_runs_and_keeps_its_budget() {
    every_policy_keeps_its_budget_on(CPU);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_every_policy_runs_and_keeps_its_budget() {
    every_policy_keeps_its_budget_on(CUDA);
}

fn every_policy_keeps_its_budget_on(device: &str) {
    let folder = deep();
    let keep = smallest(&folder, device, "keep");
    for policy in
        ["keep", "vdnn-all:m", "vdnn-all", "vdnn-conv:m", "vdnn-conv:p", "vdnn-dyn", "accudnn", "joint"]
    {
        let report =
            folder.json(&format!("{} --device-memory {} --memory-policy {policy}", time(device), 2 * keep));
        let run = &report["runs"][0];
        assert!(number(&run["memory"]["arena"]) <= 2 * keep, "{policy}: {run}");
        assert!(run["initial_loss"].as_f64().is_some_and(f64::is_finite));
    }
}

/// AccUDNN's plans where the fastest workspaces have no place among what else lies there, each beside that for a little
/// less memory, where they have.
#[test]
fn without_place_for_the_fastest_workspaces_kernels_do_not_all_get_the_smallest() {
    let folder = Folder::new();
    let net = "--model resnet50_v1_5 --batch 8 --device h200 --dtype bf16 --layout nhwc --synthetic";
    let planned_ms = |budget: usize| {
        let plan = format!("plan {net} --memory-policy accudnn --device-memory {budget}");
        folder.json(&plan)["schedule"]["planned_ms"].as_f64().unwrap()
    };
    for budgets in [[330_000_000, 339_347_978], [459_430_005, 471_438_208]] {
        let [less_ms, ms] = budgets.map(planned_ms);
        assert!(ms <= less_ms, "{budgets:?}: {ms} after {less_ms}");
    }
}

/// On the tables of a GPU, in eighths of the memory that everything takes: more memory never costs time, and no other
/// policy is faster in as much of it, or has a plan where this one has none.
fn joint_plans_are_never_slower_with_more_memory_or_than_others(net: &str, batch: usize) {
    let folder = Folder::new();
    let planned = |policy: &str, budget: &str| {
        let plan = format!("plan --model {net} --batch {batch} --device h200 --memory-policy {policy}");
        let output = folder.run(&format!("{plan} --device-memory {budget} --json"));
        let report = output.status.success().then(|| text(&output.stdout));
        let schedule = serde_json::from_str::<Value>(&report?).unwrap()["schedule"].clone();
        assert!(number(&schedule["arena"]) <= number(&schedule["budget"]), "{net} in {budget}");
        Some(schedule)
    };
    let ms = |schedule: &Value, field: &str| schedule[field].as_f64().unwrap();
    let most = number(&planned("joint", "130GiB").unwrap()["arena"]);
    let (mut last_ms, mut count) = (f64::INFINITY, 0);
    for eighth in 1..=8 {
        let budget = (most / 8 * eighth).to_string();
        let joint = planned("joint", &budget);
        let joint_ms = joint.as_ref().map_or(f64::INFINITY, |schedule| ms(schedule, "planned_ms"));
        assert!(joint_ms <= last_ms * (1.0 + 1e-9), "{net}, {eighth}/8: {joint_ms} after {last_ms}");
        if let Some(schedule) = joint.filter(|_| net == "resnet50" && eighth >= 3) {
            let (bound_ms, gap) = (ms(&schedule, "bound_ms"), if eighth == 3 { 0.02 } else { 0.01 });
            assert!(joint_ms <= (1.0 + gap) * bound_ms, "{eighth}/8: {joint_ms} over {bound_ms}");
        }
        for policy in ["vdnn-all:m", "vdnn-conv:p", "vdnn-dyn", "accudnn"] {
            let other_ms = planned(policy, &budget).map_or(f64::INFINITY, |one| ms(&one, "planned_ms"));
            assert!(joint_ms <= other_ms * (1.0 + 1e-9), "{net}, {eighth}/8: {policy} takes {other_ms}");
        }
        (last_ms, count) = (joint_ms, count + usize::from(joint_ms.is_finite()));
    }
    assert!(count >= 3, "{net} has plans in {count} of 8 budgets");
}

/// Two tests, as both cores are there.
#[test]
fn joint_plans_of_resnet50() {
    joint_plans_are_never_slower_with_more_memory_or_than_others("resnet50", 256);
}

#[test]
fn joint_plans_of_other_recorded_nets() {
    for (net, batch) in [("alexnet", 256), ("googlenet", 128), ("resnet18", 128), ("vgg16", 64)] {
        joint_plans_are_never_slower_with_more_memory_or_than_others(net, batch);
    }
}

/// Little above the smallest budget, where all but what is needed at once has to leave and come back, and buffers have to
/// lie nearly without gaps. What takes 3 % less has no plan.
#[test]
fn joint_plans_near_the_floor_are_fast() {
    let folder = Folder::new();
    for (net, batch, mib, over_bound) in [("googlenet", 128, 1005, 1.2), ("resnet50", 50, 985, 2.0)] {
        let plan = format!("plan --model {net} --batch {batch} --device h200 --memory-policy joint");
        let report = folder.json(&format!("{plan} --device-memory {mib}MiB"));
        let ms = |field: &str| report["schedule"][field].as_f64().unwrap();
        assert!(ms("planned_ms") <= over_bound * ms("bound_ms"), "{net}: {}", report["schedule"]);
        let refused = folder.run(&format!("{plan} --device-memory {}MiB", mib * 97 / 100));
        assert_refused(&refused, 1, &["the smallest budget with a plan is"], net);
    }
}

/// What `tune` recommends follows from what it reports, and fits.
#[test]
fn tune_recommends_a_mini_batch_that_fits_and_its_rate() {
    let folder = deep();
    let budget = 2 * smallest(&folder, CPU, "keep");
    let tune = format!("tune --model net.prototxt --device-memory {budget} --iterations 1 {CPU}");
    for (base_lr, convexity) in [(0.02, 0.0), (0.02, 5.0)] {
        let rate = format!("--base-lr {base_lr} --convexity {convexity}");
        let report = folder.json(&format!("{tune} {rate} --plot {convexity}.svg"));
        assert!(text(&folder.read(&format!("{convexity}.svg"))).starts_with("<svg"));
        let advice = &report["advice"];
        let value = |field: &str| advice[field].as_f64().unwrap_or_else(|| panic!("{field} in {advice}"));
        let times = value("mini_batch") / value("base");
        assert_eq!((value("base"), value("budget") as u64), (8.0, budget));
        // Everything stays at the net's own mini-batch, so that is no limit.
        assert!(times >= 1.0, "{advice}");
        let expected = match convexity {
            0.0 => base_lr * times,
            c => (1.0 - (1.0 - base_lr * c).powf(times)) / c,
        };
        assert!((value("learning_rate") / expected - 1.0).abs() < 1e-9, "{expected} in {advice}");
        let [median, most] = [0, 1].map(|index| advice["model_errors"][index].as_f64().unwrap());
        assert!(0.0 <= median && median <= most && value("predicted_images_per_s") > 0.0, "{advice}");
        assert!(value("measured_images_per_s") > 0.0);
        let accudnn = format!("{} --batch {} --memory-policy accudnn", time(CPU), value("mini_batch"));
        folder.succeed(&format!("{accudnn} --device-memory {budget}"));
    }
    let said = folder.succeed(&format!("{tune} --base-lr 1e-7"));
    assert!(!said.contains("learning rate 0.0000"), "{said}");
}

/// Under its recorded schedule a training goes on as if nothing had happened, and under another policy it says so.
#[test]
fn a_training_resumes_under_its_schedule() {
    a_training_resumes_on(CPU);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_a_training_resumes_under_its_schedule() {
    a_training_resumes_on(CUDA);
}

fn a_training_resumes_on(device: &str) {
    let folder = deep();
    let budget = (smallest(&folder, device, "joint") + smallest(&folder, device, "keep")) / 2;
    folder.write(
        "solver.prototxt",
        "net: 'net.prototxt' type: 'Adam' base_lr: 0.001 lr_policy: 'fixed' momentum: 0.9 display: 1 max_iter: 4 random_seed: 3
         snapshot: 2 snapshot_prefix: 'whole'",
    );
    let train = format!("train --solver solver.prototxt {device} --deterministic --device-memory {budget}");
    let whole = folder.json(&train);
    assert_eq!(whole["schedule"]["policy"], "joint");
    let resume = format!("{train} --snapshot whole_iter_2.solverstate.safetensors --snapshot-prefix other");
    let resumed = folder.json(&resume);
    assert_eq!(resumed["summary"]["loss"], whole["summary"]["loss"]);
    assert!(resumed["notes"].to_string().contains("the snapshot's plan is used"), "{}", resumed["notes"]);
    assert_eq!(folder.read("other_iter_4.safetensors"), folder.read("whole_iter_4.safetensors"));
    let other = folder.json(&format!("{resume} --memory-policy vdnn-dyn"));
    let reason = "the snapshot's plan is not used, as it was made with --memory-policy joint";
    assert!(other["notes"].to_string().contains(reason), "{}", other["notes"]);
}

#[test]
fn the_largest_mini_batch_is_found_by_planning() {
    let folder = deep();
    let plan = |arguments: &str| format!("plan --model net.prototxt --policy undivided {arguments}");
    let (budget, mut before) = (3 * smallest(&folder, CPU, "keep"), 16);
    for policy in ["keep", "joint"] {
        let within = format!("--device-memory {budget} --memory-policy {policy}");
        let report = folder.json(&plan(&format!("--batch max {within}")));
        let (largest, points) = (number(&report["batches"]["largest"]), report["batches"]["points"].clone());
        assert!(largest > before, "{policy} holds {largest} in three times the memory of 8");
        before = largest * 5 / 4;
        assert_eq!(report["net"]["mini_batch"], points.as_array().unwrap().last().unwrap()["mini_batch"]);
        assert!(points.as_array().unwrap().iter().all(|point| point["images_per_s"].as_f64() > Some(0.0)));
        folder.succeed(&plan(&format!("--batch {largest} {within}")));
        // How little ours can do with depends a little on times, too.
        let more = if policy == "keep" { largest + 1 } else { 3 * largest };
        let output = folder.run(&plan(&format!("--batch {more} {within}")));
        assert_refused(&output, 1, &["smallest budget"], policy);
    }
}

#[test]
fn what_policies_cannot_honour_is_refused() {
    let folder = deep();
    for (arguments, code, parts) in [
        ("--memory-policy joint", 2, &["--device-memory"][..]),
        ("--device-memory 1GiB --memory-policy vdnn", 2, &["--memory-policy", "vdnn-all"]),
        ("--device-memory 1GiB --memory-policy joint:m", 2, &["--memory-policy", "vdnn-all"]),
        ("--batch max", 2, &["--batch max", "--device-memory"]),
        ("--batch max --device-memory 4096", 1, &["smallest budget"]),
    ] {
        let output = folder.run(&format!("{} {arguments}", time(CPU)));
        assert_eq!(output.status.code(), Some(code), "{arguments}: {}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(parts.iter().all(|part| said.contains(part)), "{arguments}: {said}");
    }
    let trace = folder.run("plan --model net.prototxt --device-memory 8GiB --trace trace.json");
    assert_refused(&trace, 2, &["--trace", "--memory-policy joint"], "a trace of nothing");
    for kept in ["--memory-policy keep", "--phase TEST"] {
        let plan = format!("plan --model net.prototxt --device-memory 8GiB --trace trace.json {kept}");
        let trace = folder.run(&plan);
        assert_refused(&trace, 2, &["--trace has no effect on a net"], kept);
        assert!(text(&trace.stdout).is_empty(), "it is known before anything is measured");
    }
    for (command, file) in
        [("time", "--trace ."), ("time", "--plot x.svg/"), ("tune --device-memory 1GiB", "--trace .")]
    {
        let said = folder.run(&format!("{command} --model net.prototxt {file}"));
        let parts = ["cannot write", "is a directory"];
        assert_refused(&said, 1, &parts, file);
        assert!(text(&said.stdout).is_empty(), "before anything is measured");
    }
    let output = folder.run("profile --model net.prototxt --batch max");
    assert_refused(&output, 2, &["--batch max"], "nothing is planned");
}
