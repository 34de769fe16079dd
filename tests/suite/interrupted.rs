//! Commands that cannot go on: a signal, a full disk, a reader that goes away.
#![cfg(unix)]

use crate::fixtures::{Folder, is_progress, png, text, without_progress};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread::sleep};

const TRAIN: &str = "train --solver solver.prototxt --no-test --max-iter 1000000 --snapshot-prefix s/small";

/// A training that would go on for hours, once it has begun.
fn begin(folder: &Folder, arguments: &str) -> (Child, BufReader<ChildStdout>) {
    begin_until(folder, arguments, "Iteration 3, loss")
}

/// A run that would go on for hours, once it has said something.
fn begin_until(folder: &Folder, arguments: &str, said: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = folder.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with(said) {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "it ended before it was asked to");
    }
    (child, stdout)
}

/// Sends `signal`, and returns the exit code and all that is said after it.
fn end(mut child: Child, mut stdout: BufReader<ChildStdout>, signal: &str) -> (Option<i32>, String, String) {
    let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let (mut said, mut complained) = (String::new(), String::new());
    stdout.read_to_string(&mut said).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut complained).unwrap();
    let complained = without_progress(&complained);
    (child.wait().unwrap().code(), said, complained)
}

/// Under `nohup` these tests, and what they start, are not to end with their terminal.
fn hangups_are_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
}

#[test]
fn a_signal_stops_a_training_with_a_snapshot_to_go_on_from() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        if signal == "HUP" && hangups_are_ignored() {
            continue;
        }
        let folder = Folder::new();
        let (child, stdout) = begin(&folder, TRAIN);
        let (exit_code, said, complained) = end(child, stdout, signal);
        assert_eq!(exit_code, Some(code), "{said}\n{complained}");
        let sentence = complained.strip_prefix("stopped: after ").expect(&complained);
        let (iteration, rest) = sentence.split_once(" of 1000000 iterations; --snapshot ").expect(sentence);
        let (path, rest) = rest.split_once(' ').unwrap();
        assert_eq!(path, format!("s/small_iter_{iteration}.solverstate.safetensors"));
        assert_eq!(rest, "resumes from there\n");
        assert!(said.contains(&format!("\nStopped at iteration {iteration} of 1000000 after ")), "{said}");
        assert!(
            folder.snapshots().iter().all(|name| name.ends_with(".safetensors")),
            "{:?}",
            folder.snapshots()
        );
        let iteration: usize = iteration.parse().unwrap();
        let (more, arguments) = (iteration + 2, TRAIN.replace("1000000", &(iteration + 2).to_string()));
        let resumed = folder.succeed(&format!("{arguments} --snapshot {path}"));
        assert!(resumed.contains(&format!("\nIteration {iteration}, loss = ")), "{resumed}");
        assert!(resumed.contains(&format!("\nTrained to iteration {more} in ")), "{resumed}");
    }
}

/// As `timeout` sends it: to the process, and to its group.
#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let folder = Folder::new();
    let train = format!("{TRAIN} --batch 3000 --policy undivided");
    let (child, stdout) = begin_until(&folder, &train, "Iteration 0, loss");
    let sent = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    sleep(Duration::from_millis(20));
    let (exit_code, said, complained) = end(child, stdout, "TERM");
    assert_eq!(exit_code, Some(143), "{said}\n{complained}");
    let resumes = complained.starts_with("stopped: after ") && complained.contains(" resumes from ");
    assert!(resumes, "{complained}");
}

#[test]
fn a_training_without_snapshots_stops_without_one_and_json_is_whole() {
    let folder = Folder::new();
    let arguments = TRAIN.replace("--snapshot-prefix s/small", "--no-snapshot");
    let (child, stdout) = begin(&folder, &arguments);
    let (exit_code, _, complained) = end(child, stdout, "INT");
    assert_eq!(exit_code, Some(130));
    assert!(complained.ends_with(" of 1000000 iterations; no snapshot was to be written\n"), "{complained}");
    assert_eq!(complained.lines().count(), 1, "{complained}");
}

/// The one sentence that the command fails with where no file may have more than so many blocks of 512 bytes.
fn in_files_of(folder: &Folder, blocks: usize, arguments: &str) -> String {
    let script = format!("ulimit -f {blocks}; trap '' XFSZ; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_microbatch")).args(arguments.split_whitespace());
    let output = command.env("UCUDNN_DATABASE", "none").current_dir(folder.path(".")).output().unwrap();
    let stderr = without_progress(&text(&output.stderr));
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    stderr
}

/// What is said last stays half said, but what was done until then is saved, and said when there is room again.
#[test]
fn a_log_without_room_is_one_sentence_and_nothing_is_lost() {
    let folder = Folder::new();
    folder.change_solver(&[["snapshot: 6", "snapshot: 1000"]]);
    let train = "train --solver solver.prototxt --no-test --snapshot-prefix s/small --log log.jsonl --policy undivided --threads 2";
    let stderr = in_files_of(&folder, 80, &format!("{train} --max-iter 1000000"));
    let saved = stderr
        .strip_prefix("error: cannot write log.jsonl: File too large (os error 27); --snapshot s/small_iter_")
        .and_then(|rest| rest.strip_suffix(".solverstate.safetensors resumes from there\n"));
    let saved: u64 = saved.expect(&stderr).parse().unwrap();
    folder.succeed(&format!("{train} --resume --max-iter {}", saved + 3));
    let log = text(&folder.read("log.jsonl"));
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let shown =
        lines.filter(|line| line["kind"] == "display").map(|line| line["iteration"].as_u64().unwrap());
    assert_eq!(shown.collect::<Vec<_>>(), (0..saved - 1).chain(saved..saved + 3).collect::<Vec<_>>());
}

/// As when a disk or a server is taken away.
#[test]
fn a_folder_that_goes_away_is_one_sentence_and_what_is_in_it_is_good() {
    let folder = Folder::new();
    let (mut child, mut stdout) = begin(&folder, TRAIN);
    fs::rename(folder.path("s"), folder.path("away")).unwrap();
    folder.write("s", "no folder");
    let (mut said, mut complained) = (String::new(), String::new());
    stdout.read_to_string(&mut said).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut complained).unwrap();
    let complained = without_progress(&complained);
    assert_eq!((child.wait().unwrap().code(), complained.lines().count()), (Some(1), 1), "{complained}");
    assert!(complained.starts_with("error: cannot write s/small_iter_"), "{complained}");
    fs::remove_file(folder.path("s")).unwrap();
    fs::rename(folder.path("away"), folder.path("s")).unwrap();
    folder.succeed(&TRAIN.replace("1000000", "100").replace("train ", "train --resume "));
    assert!(folder.path("s/small_iter_100.safetensors").is_file());
}

/// A disk that takes 4 KiB and no more: a limit on the size of files, as nobody can fill a disk in a test.
#[test]
fn a_full_disk_is_one_sentence_and_leaves_no_half_of_a_snapshot() {
    let folder = Folder::new();
    fs::create_dir(folder.path("s")).unwrap();
    folder.write("s/small_iter_6.safetensors", "from before");
    let stderr = in_files_of(&folder, 8, TRAIN);
    let sentence = "error: cannot write s/small_iter_6.safetensors: File too large";
    assert!(stderr.starts_with(sentence), "{stderr}");
    assert_eq!(folder.snapshots(), ["small_iter_6.safetensors"], "what was there before, and nothing else");
    assert_eq!(folder.read("s/small_iter_6.safetensors"), b"from before");
    // Nor its weights, where these have room and the solver's state has none.
    folder.succeed(&format!("{} --max-iter 6", TRAIN.replace(" --max-iter 1000000", "")));
    let blocks = folder.read("s/small_iter_6.safetensors").len().div_ceil(512);
    fs::remove_dir_all(folder.path("s")).unwrap();
    let stderr = in_files_of(&folder, blocks, TRAIN);
    assert!(stderr.starts_with("error: cannot write s/small_iter_6.solverstate.safetensors: "), "{stderr}");
    assert_eq!(folder.snapshots(), [""; 0]);
}

/// What a script takes for success must be one.
#[test]
fn a_training_whose_output_nobody_reads_stops_with_a_snapshot() {
    let folder = Folder::new();
    let (mut child, stdout) = begin(&folder, &format!("{TRAIN} --log log.jsonl"));
    drop(stdout);
    let mut complained = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complained).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{complained}");
    let complained = without_progress(&complained);
    let sentence = "error: cannot write to standard output: Broken pipe (os error 32); --snapshot ";
    let rest = complained.strip_prefix(sentence).expect(&complained);
    let (path, rest) = rest.split_once(' ').unwrap();
    assert_eq!(rest, "resumes from there\n");
    let iteration: usize = path.split(['_', '.']).find_map(|word| word.parse().ok()).unwrap();
    let log = text(&folder.read("log.jsonl"));
    assert_eq!(log.matches("\"kind\":\"display\"").count(), iteration, "the log has what nobody has read");
    let arguments = TRAIN.replace("1000000", &(iteration + 2).to_string());
    folder.succeed(&format!("{arguments} --snapshot {path}"));
}

/// Its object is all that a training says with `--json`, and comes when everything is done.
#[test]
fn a_report_that_nobody_reads_is_no_success_but_the_training_is_complete() {
    let folder = Folder::new();
    let mut command =
        folder.command("train --solver solver.prototxt --snapshot-prefix small --max-iter 3 --json");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = without_progress(&text(&output.stderr));
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.ends_with("Broken pipe (os error 32); the training is complete\n"), "{stderr}");
    assert!(folder.path("small_iter_3.solverstate.safetensors").is_file());
}

/// What is said there is for people, and they have gone.
#[test]
fn a_training_whose_complaints_nobody_reads_goes_on() {
    let folder = Folder::new();
    folder.change_net("name: \"small\"", "name: \"small\" nothing_known: 3");
    let mut command = folder.command("train --solver solver.prototxt --snapshot-prefix small --max-iter 3");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(folder.path("small_iter_3.solverstate.safetensors").is_file());
}

#[test]
fn a_plan_that_is_read_in_part_is_a_success() {
    let folder = Folder::new();
    let mut command = folder.command("plan --model net.prototxt");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), without_progress(&text(&output.stderr))), (Some(0), String::new()));
}

/// A test that takes hours is given up, and the snapshot is that of the iteration before it.
#[test]
fn a_signal_is_heard_during_a_test() {
    let folder = Folder::new();
    folder.change_solver(&[
        ["test_iter: 4", "test_iter: 100000000"],
        ["test_interval: 10", "test_interval: 4"],
    ]);
    let arguments = TRAIN.replace("--no-test", "");
    // No test before the first iteration.
    folder.change_solver(&[["max_iter: 12", "max_iter: 12 test_initialization: false"]]);
    let (child, stdout) = begin(&folder, &arguments);
    sleep(Duration::from_millis(300));
    let (exit_code, said, complained) = end(child, stdout, "TERM");
    assert_eq!(exit_code, Some(143), "{said}\n{complained}");
    let path = "s/small_iter_4.solverstate.safetensors";
    assert_eq!(
        complained,
        format!("stopped: after 4 of 1000000 iterations; --snapshot {path} resumes from there\n")
    );
    assert!(!said.contains("Testing"), "{said}");
}

#[test]
fn a_signal_is_heard_between_the_mini_batches_of_an_iteration() {
    let folder = Folder::new();
    folder.change_solver(&[["max_iter: 12", "max_iter: 12 iter_size: 100000000"]]);
    let (child, stdout) = begin_until(&folder, TRAIN, "  memory");
    sleep(Duration::from_millis(500));
    let (exit_code, said, complained) = end(child, stdout, "INT");
    assert_eq!(exit_code, Some(130), "{said}\n{complained}");
    assert_eq!(complained, "stopped: after 0 of 1000000 iterations; there was nothing new to save\n");
    assert!(said.contains("\nStopped at iteration 0 of 1000000 after 0.0 s of iterations\n"), "{said}");
}

#[test]
fn a_test_that_is_stopped_says_what_it_has_found() {
    let folder = Folder::new();
    folder.succeed("train --solver solver.prototxt --snapshot-prefix small --max-iter 1 --no-test");
    let test = "test --model net.prototxt --weights small_iter_1.safetensors --iterations 1000000000";
    let (child, stdout) = begin_until(&folder, test, "Batch 3, loss");
    let (exit_code, said, complained) = end(child, stdout, "INT");
    assert_eq!(exit_code, Some(130), "{said}\n{complained}");
    let done = complained
        .strip_prefix("stopped: after ")
        .and_then(|rest| rest.strip_suffix(" of 1000000000 mini-batches\n"));
    let done: usize = done.expect(&complained).parse().unwrap();
    // Of batch 3 the first line was read before.
    assert!(done == 4 || said.contains(&format!("Batch {}, loss", done - 1)), "{said}");
    assert!(done > 3 && !said.contains(&format!("Batch {done}, ")), "{said}");
    assert!(said.contains("\nLoss: ") && said.contains("\naccuracy = "), "{said}");
}

#[test]
fn predicting_that_is_stopped_says_so() {
    let folder = Folder::new();
    folder.succeed("train --solver solver.prototxt --snapshot-prefix small --max-iter 1 --no-test");
    folder.write("a.png", png(8, |x, y| [(x * y) as u8]));
    let images = "a.png ".repeat(30_000);
    let predict =
        format!("predict {images}--model net.prototxt --weights small_iter_1.safetensors --batch 1");
    let (child, stdout) = begin_until(&folder, &predict, "a.png: ");
    let (exit_code, said, complained) = end(child, stdout, "INT");
    assert_eq!(exit_code, Some(130), "{complained}");
    let done = complained.strip_prefix("stopped: after ");
    let done = done.and_then(|rest| rest.strip_suffix(" of 30000 mini-batches\n")).expect(&complained);
    // The first was read before.
    assert_eq!(said.matches("a.png: ").count() + 1, done.parse::<usize>().unwrap());
}

/// Where stderr is no terminal, measuring says every few seconds how far it is; what was measured when it is stopped is
/// kept.
#[test]
fn measuring_tells_its_progress_and_can_be_stopped() {
    let folder = Folder::new();
    let profile =
        "profile --conv n=64,c=64,h=27,w=27,k=192,r=5,s=5,pad=2 --policy all --threads 1 --database db";
    let mut command = folder.command(profile);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    // At least one measurement is made when the count is no longer 0.
    while !is_progress(&line) || line.contains(" 0/") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended before it was asked to");
    }
    assert!(line.starts_with("measuring ") && line.contains(" at "), "{line}");
    let sent = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let mut complained = String::new();
    stderr.read_to_string(&mut complained).unwrap();
    let sentence = "stopped: while kernels were measured; what was measured is kept in the database\n";
    assert_eq!((child.wait().unwrap().code(), &without_progress(&complained)[..]), (Some(130), sentence));
    let of_device = fs::read_dir(folder.path("db")).unwrap().next().unwrap().unwrap();
    assert_eq!(fs::read_dir(of_device.path()).unwrap().count(), 1);
}

/// With `--json` nothing is said on stdout until the end; a batch system's log should show that something happens.
#[test]
fn training_tells_its_progress() {
    let folder = Folder::new();
    let mut command = folder.command(&format!("{TRAIN} --json"));
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !(is_progress(&line) && line.starts_with("training ")) {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended before it was asked to");
    }
    assert!(start.elapsed() > Duration::from_secs(4), "not too often: {line}");
    assert!(line.contains("/1000000 after ") && line.contains(" s: loss "), "{line}");
    assert!(line.ends_with(" images/s\n"), "{line}");
    let sent = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["summary"]["snapshot"].is_string());
}
