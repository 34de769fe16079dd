//! `train` when it cannot go on: a signal, a full disk.
#![cfg(unix)]

use crate::fixtures::{Folder, text};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, Stdio},
};

const TRAIN: &str = "train --solver solver.prototxt --no-test --max-iter 1000000 --snapshot-prefix s/small";

/// A training that would go on for hours, once it has begun.
fn begin(folder: &Folder, arguments: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = folder.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("Iteration 3, loss") {
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
    (child.wait().unwrap().code(), said, complained)
}

/// The names in the folder of the snapshots, hidden ones too.
fn snapshots(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path("s")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_signal_stops_a_training_with_a_snapshot_to_go_on_from() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let folder = Folder::new();
        let (child, stdout) = begin(&folder, TRAIN);
        let (exit_code, said, complained) = end(child, stdout, signal);
        assert_eq!(exit_code, Some(code), "{said}\n{complained}");
        let sentence = complained.strip_prefix("stopped: after ").expect(&complained);
        let (iteration, rest) = sentence.split_once(" of 1000000 iterations; --snapshot ").expect(sentence);
        let (path, rest) = rest.split_once(' ').unwrap();
        assert_eq!(path, format!("s/small_iter_{iteration}.solverstate.safetensors"));
        assert_eq!(rest, "goes on from there\n");
        assert!(said.contains(&format!("\nStopped at iteration {iteration} of 1000000 after ")), "{said}");
        assert!(
            snapshots(&folder).iter().all(|name| name.ends_with(".safetensors")),
            "{:?}",
            snapshots(&folder)
        );
        let iteration: usize = iteration.parse().unwrap();
        let (more, arguments) = (iteration + 2, TRAIN.replace("1000000", &(iteration + 2).to_string()));
        let resumed = folder.succeed(&format!("{arguments} --snapshot {path}"));
        assert!(resumed.contains(&format!("\nIteration {iteration}, loss = ")), "{resumed}");
        assert!(resumed.contains(&format!("\nTrained to iteration {more} in ")), "{resumed}");
    }
}

#[test]
fn a_training_without_snapshots_stops_without_one_and_json_is_whole() {
    let folder = Folder::new();
    let arguments = TRAIN.replace("--snapshot-prefix s/small", "--no-snapshot");
    let (child, stdout) = begin(&folder, &arguments);
    let (exit_code, _, complained) = end(child, stdout, "INT");
    assert_eq!(exit_code, Some(130));
    assert!(complained.ends_with(" of 1000000 iterations; no snapshot was asked for\n"), "{complained}");
    assert_eq!(complained.lines().count(), 1, "{complained}");
}

/// A disk that takes 4 KiB and no more: a limit on the size of files, as nobody can fill a disk in a test.
#[test]
fn a_full_disk_is_one_sentence_and_leaves_no_half_of_a_snapshot() {
    let folder = Folder::new();
    fs::create_dir(folder.path("s")).unwrap();
    folder.write("s/small_iter_6.safetensors", "from before");
    let mut command = Command::new("sh");
    let script = "ulimit -f 8; trap '' XFSZ; exec \"$0\" \"$@\"";
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_microbatch")).args(TRAIN.split_whitespace());
    let output = command.env("UCUDNN_DATABASE", "none").current_dir(folder.path(".")).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    let sentence = "error: cannot write the snapshot s/small_iter_6.safetensors: File too large";
    assert!(stderr.starts_with(sentence), "{stderr}");
    assert_eq!(snapshots(&folder), ["small_iter_6.safetensors"], "what was there before, and nothing else");
    assert_eq!(folder.read("s/small_iter_6.safetensors"), b"from before");
}
