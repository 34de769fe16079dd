//! One net on several devices: threads of one command, and processes as a launcher starts them.
#![cfg(unix)]

use crate::bad_input::assert_refused;
use crate::fixtures::{Folder, text, without_progress};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

const TRAIN: &str = "train --solver solver.prototxt --policy undivided --threads 1";

fn losses(report: &Value) -> Vec<f64> {
    let steps = report["steps"].as_array().unwrap().iter();
    steps.map(|step| step["loss"].as_f64().unwrap()).collect()
}

fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let error = |(found, expected): (&f64, &f64)| (found - expected).abs() / expected;
    let error = found.iter().zip(expected).map(error).fold(0.0, f64::max);
    assert!(error < 1e-5, "{found:?} {expected:?}");
}

/// The net's mini-batch is 8: two ranks of 4, or two processes of 4, train as one device does.
#[test]
fn devices_train_together_as_one_does_and_a_snapshot_goes_on_on_any_number() {
    let folder = Folder::new();
    let train = |options: &str| folder.json(&format!("{TRAIN} {options}"));
    let one = train("--device cpu --snapshot-prefix one");
    let two = train("--device cpu,cpu --batch 4 --snapshot-prefix two");
    assert_near(&losses(&two), &losses(&one));
    let notes = two["notes"].to_string();
    assert!(notes.contains("2 ranks, each with its own mini-batch of 4: 8 samples in all"), "{notes}");
    let outputs = |report: &Value| {
        let outputs = report["tests"].as_array().unwrap().last().unwrap()["outputs"].clone();
        outputs
            .as_array()
            .unwrap()
            .iter()
            .map(|output| output["values"][0].as_f64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_near(&outputs(&two), &outputs(&one));
    let resume = "--snapshot two_iter_6.solverstate.safetensors";
    let again = train(&format!("--device cpu,cpu --batch 4 --snapshot-prefix again {resume}"));
    assert_eq!(losses(&again), losses(&two)[6..]);
    assert!(folder.read("again_iter_12.safetensors") == folder.read("two_iter_12.safetensors"));
    assert!(!again["notes"].to_string().contains("not as when"), "{}", again["notes"]);
    let alone = train(&format!("--device cpu --snapshot-prefix alone {resume}"));
    assert_near(&losses(&alone), &losses(&one)[6..]);
    assert!(alone["notes"].to_string().contains("the number of ranks"));
    // The snapshot has the plan: without it the processes would choose their algorithms by measurements of their own.
    let processes = Launch::new(2);
    let options = format!("--batch 4 --max-iter 12 --no-snapshot {resume}");
    let follower = processes.start(&folder, 1, &options);
    let leader = processes.start(&folder, 0, &format!("{options} --json"));
    let [leader, follower] = [leader, follower].map(|child| child.wait_with_output().unwrap());
    assert!(leader.status.success() && follower.status.success(), "{leader:?} {follower:?}");
    assert_eq!(losses(&serde_json::from_slice(&leader.stdout).unwrap()), losses(&two)[6..]);
    assert_eq!(
        (text(&follower.stdout), without_progress(&text(&follower.stderr))),
        (String::new(), String::new())
    );
}

/// AlexNet's recorded step: two GPUs joined by NVLink lose next to nothing, as DistributedDataParallel does.
#[test]
fn a_plan_predicts_what_several_gpus_bring() {
    let folder = Folder::new();
    let plan = |options: &str| {
        folder.json(&format!("plan --model alexnet --device h200 --batch 256 --synthetic {options}"))
    };
    let points = |options: &str| plan(options)["scaling"]["points"].as_array().unwrap().clone();
    let number = |point: &Value, name: &str| point[name].as_f64().unwrap();
    let nvlink = points("--gpus 1024");
    assert_eq!(
        nvlink.iter().map(|point| number(point, "gpus")).collect::<Vec<_>>()[..4],
        [1.0, 2.0, 4.0, 8.0]
    );
    assert_eq!((nvlink.len(), number(&nvlink[0], "efficiency")), (11, 1.0));
    let two = &nvlink[1];
    assert!(number(two, "efficiency") > 0.97 && number(two, "hidden") > 0.8, "{two}");
    // 244 MB of gradients, each of which passes once.
    assert!((number(two, "sums_ms") - 0.92).abs() < 0.1, "{two}");
    let slow = points("--gpus 3 --link 30,1");
    assert!(
        number(&slow[2], "efficiency") < number(&slow[1], "efficiency") && number(&slow[1], "hidden") < 0.5
    );
    assert!(plan("")["scaling"].is_null());
    for refused in ["--link 1", "--gpus 2 --conv n=8,c=4,h=8,k=4,r=3"] {
        assert_eq!(folder.run(&format!("plan --device h200 {refused}")).status.code(), Some(2), "{refused}");
    }
}

#[test]
fn a_net_is_timed_on_several_devices() {
    let folder = Folder::new();
    let time = |device: &str| {
        folder.json(&format!("time --model net.prototxt --iterations 2 --threads 1 --device {device}"))
    };
    let (one, two) = (time("cpu"), time("cpu,cpu"));
    assert_eq!(two["runs"][0]["iterations_ms"].as_array().unwrap().len(), 2);
    let speed = |report: &Value| {
        let run = &report["runs"][0];
        let ms = run["forward_backward_ms"].as_f64().unwrap() + run["update_ms"].as_f64().unwrap();
        run["images_per_s"].as_f64().unwrap() * ms / 1e3
    };
    assert_eq!([speed(&one).round(), speed(&two).round()], [8.0, 16.0]);
    // Both have their arenas in one process.
    let large =
        "layer { name: 'd' type: 'DummyData' top: 'd' dummy_data_param { shape { dim: 512 dim: 65536 } } }";
    folder.write("large.prototxt", large);
    let report = folder.json("time --model large.prototxt --phase TEST --iterations 1 --device cpu,cpu");
    let memory = &report["runs"][0]["memory"];
    let bytes = |name: &str| memory[name].as_u64().unwrap();
    assert!(bytes("run_peak") > 2 * bytes("arena") && bytes("arena") >= 128 << 20, "{memory}");
}

/// Processes as torchrun starts them.
struct Launch {
    ranks: usize,
    port: u16,
}

impl Launch {
    fn new(ranks: usize) -> Self {
        Self { ranks, port: TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port() }
    }

    fn start(&self, folder: &Folder, rank: usize, options: &str) -> Child {
        let mut command = folder.command(&format!("{TRAIN} --device cpu {options}"));
        let (port, ranks, rank) = (self.port.to_string(), self.ranks.to_string(), rank.to_string());
        let names = ["MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK"];
        command.envs(names.into_iter().zip([&port, &ranks, &rank, &rank])).env("MASTER_ADDR", "localhost");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// All ranks of a training that would go on for hours, once it has begun.
    fn begin(&self, folder: &Folder) -> Vec<Child> {
        let options = "--batch 4 --no-test --max-iter 1000000 --snapshot-prefix s/small";
        let mut ranks: Vec<Child> = (0..self.ranks).map(|rank| self.start(folder, rank, options)).collect();
        let mut stdout = BufReader::new(ranks[0].stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("Iteration 3, loss") {
            line.clear();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "it ended before it was asked to");
        }
        // Somebody has to read.
        std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        ranks
    }
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

/// How the other ranks of three end after `name` was sent to this one.
fn after(name: &str, rank: usize) -> (Folder, Vec<Output>) {
    let folder = Folder::new();
    let mut ranks = Launch::new(3).begin(&folder);
    signal(&ranks[rank], name);
    let mut lost = ranks.remove(rank);
    let outputs = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect();
    let _ = lost.kill();
    lost.wait().unwrap();
    (folder, outputs)
}

#[test]
fn a_rank_that_is_killed_ends_all_with_its_name_and_a_snapshot() {
    for lost in [0, 2] {
        let (folder, others) = after("KILL", lost);
        for output in &others {
            let complained = without_progress(&text(&output.stderr));
            let sentence = format!("error: rank {lost} of 3 is lost: ");
            assert_eq!(output.status.code(), Some(1), "{complained}");
            assert!(complained.starts_with(&sentence) && complained.lines().count() == 1, "{complained}");
        }
        if lost > 0 {
            let complained = without_progress(&text(&others[0].stderr));
            let path = complained.split("--snapshot ").nth(1).expect(&complained).split(' ').next().unwrap();
            let iteration: usize = path.split(['_', '.']).find_map(|word| word.parse().ok()).unwrap();
            let resume =
                format!("--max-iter {} --snapshot {path} --no-test --snapshot-prefix t", iteration + 2);
            folder.succeed(&format!("{TRAIN} --device cpu,cpu,cpu --batch 4 {resume}"));
        }
    }
}

/// A process that does not answer, as on a machine that hangs.
#[test]
fn a_rank_that_is_silent_ends_all_with_its_name() {
    let (_, others) = after("STOP", 1);
    for output in others {
        let complained = without_progress(&text(&output.stderr));
        assert!(
            complained.starts_with("error: rank 1 of 3 is lost: nothing was heard from it for 30 s"),
            "{complained}"
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_signal_to_the_first_rank_ends_all_in_good_order() {
    let folder = Folder::new();
    let ranks = Launch::new(2).begin(&folder);
    ranks.iter().rev().for_each(|rank| signal(rank, "TERM"));
    let outputs: Vec<Output> = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect();
    let complained = outputs.iter().map(|output| without_progress(&text(&output.stderr))).collect::<Vec<_>>();
    assert!(complained[0].starts_with("stopped: after ") && complained[1].is_empty(), "{complained:?}");
    assert_eq!(outputs.iter().map(|output| output.status.code()).collect::<Vec<_>>(), [Some(143), Some(0)]);
}

#[test]
fn ranks_that_were_given_different_things_do_not_train() {
    let folder = Folder::new();
    for iterations in [1, 2] {
        let options = format!("--device cpu --no-test --snapshot-prefix small --max-iter {iterations}");
        folder.succeed(&format!("{TRAIN} {options}"));
    }
    let weights = [1, 2].map(|at| format!("--weights small_iter_{at}.safetensors"));
    for [first, second] in [["--seed 1", "--seed 2"], ["--seed 1", ""], [&weights[0], &weights[1]]] {
        let launch = Launch::new(2);
        let start = |rank, options: &str| {
            launch.start(&folder, rank, &format!("--no-test --no-snapshot --max-iter 3 {options}"))
        };
        let ranks = [start(0, first), start(1, second)].map(|rank| rank.wait_with_output().unwrap());
        for output in ranks {
            let complained = without_progress(&text(&output.stderr));
            let sentence = "it was given another solver, net, seed, data, weights or snapshot than rank 0\n";
            assert!(!output.status.success() && complained.ends_with(sentence), "{first} {complained}");
        }
    }
}

#[test]
fn a_rank_whose_data_are_bad_is_named() {
    let folder = Folder::new();
    let train = format!("{TRAIN} --no-test --no-snapshot --device cpu,cpu --batch 1");
    folder.change_net("num_output: 10", "num_output: 5");
    // Labels of a data set would be looked at before; those that a layer has changed are not.
    let same = "layer { name: \"same\" type: \"Power\" bottom: \"label\" top: \"label\" }";
    folder.change_net("layer { name: \"loss\"", &format!("{same}\nlayer {{ name: \"loss\""));
    // The first labels are 2 and 8.
    let output = folder.run(&train);
    assert_refused(&output, 1, &["rank 1 of 2 failed: layer 'loss': the label 8 of sample 0"], "a label");
}

#[test]
fn devices_that_cannot_be_a_group_are_refused() {
    let folder = Folder::new();
    let refused = |arguments: &str, environment: &[(&str, &str)], words: &[&str]| {
        assert_refused(&folder.run_with(arguments, environment), 2, words, arguments);
    };
    refused(
        "time --model net.prototxt --device cpu,cuda:0,0",
        &[],
        &["--device cpu,cuda:0,0 has cuda:0 twice"],
    );
    refused("time --model net.prototxt --device cpu,gpu", &[], &["\"gpu\""]);
    refused("profile --model net.prototxt --device cpu,cpu", &[], &["\"cpu,cpu\""]);
    let launched = [("RANK", "0"), ("WORLD_SIZE", "2")];
    refused(&format!("{TRAIN} --device cpu,cpu"), &launched, &["a launcher has started several processes"]);
    let launched = [("RANK", "2"), ("WORLD_SIZE", "2")];
    refused(&format!("{TRAIN} --device cpu"), &launched, &["RANK=2 is no number from 0 to 1"]);
}
