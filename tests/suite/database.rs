//! Measurements from run to run.

use crate::fixtures::{Folder, text};
use serde_json::Value;
use std::{fs, path::PathBuf};

const PLAN: &str = "plan --model net.prototxt --threads 2";

fn pairs(report: &Value) -> (u64, u64) {
    // `profile` says nothing else; `plan` has more to say.
    let report = report.get("profiling").unwrap_or(report);
    (report["measured"].as_u64().unwrap(), report["known"].as_u64().unwrap())
}

fn segments(folder: &Folder, database: &str) -> Vec<PathBuf> {
    let devices = fs::read_dir(folder.path(database)).unwrap();
    let files = devices.flat_map(|device| fs::read_dir(device.unwrap().path()).unwrap());
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn what_was_measured_once_is_known_whatever_the_limit() {
    let folder = Folder::new();
    let first = folder.json(&format!("{PLAN} --database db"));
    let (measured, known) = pairs(&first);
    assert!(measured > 0 && known == 0);
    let again = folder.json(&format!("{PLAN} --database db --workspace-limit 1MiB"));
    assert_eq!(pairs(&again), (0, measured));
    assert_eq!(folder.json(&format!("{PLAN} --database db"))["plan"], first["plan"]);
    // By the variable too, and more sizes are measured where they are missing.
    let all = folder.run_with(&format!("{PLAN} --policy all --json"), &[("UCUDNN_DATABASE", "db")]);
    let all: Value = serde_json::from_slice(&all.stdout).unwrap();
    assert!(pairs(&all).0 > 0 && pairs(&all).1 == measured);
    for without in ["--no-database", "--database none"] {
        let (measured_again, known) = pairs(&folder.json(&format!("{PLAN} {without}")));
        assert_eq!((measured_again, known), (measured, 0), "{without}");
    }
    let threads = folder.json("plan --model net.prototxt --threads 1 --database db");
    assert_eq!(pairs(&threads).1, 0, "other threads are another device");
}

#[test]
fn the_default_is_the_user_s_cache_folder() {
    let folder = Folder::new();
    let cache = folder.path("cache");
    let cache = [("XDG_CACHE_HOME", cache.to_str().unwrap()), ("UCUDNN_DATABASE", "")];
    assert!(folder.run_with(&format!("{PLAN} --policy undivided"), &cache).status.success());
    assert!(!segments(&folder, "cache/microbatch/measurements").is_empty());
    let timed =
        folder.run_with("time --model net.prototxt --threads 2 --iterations 1 --policy undivided", &cache);
    assert!(text(&timed.stdout).contains("  profiling   0 (kernel, micro-batch) pairs measured"));
}

#[test]
fn times_of_a_busy_machine_are_told_from_those_of_a_run() {
    let folder = Folder::new();
    let time = "time --model net.prototxt --threads 2 --iterations 1 --policy undivided --database db";
    let says_so = |output: String| {
        output.contains("slower when measured: if the machine was busy, --no-database measures again")
    };
    folder.succeed(time);
    let segment = segments(&folder, "db").remove(0);
    let table = fs::read_to_string(&segment).unwrap();
    fs::write(&segment, table.replace("\"time_ms\":0.", "\"time_ms\":90.")).unwrap();
    assert!(says_so(folder.succeed(time)));
    fs::write(&segment, table.replace("_ms\":0.", "_ms\":0.00")).unwrap();
    assert!(!says_so(folder.succeed(time)));
}

#[test]
fn offline_plans_from_the_database_alone() {
    let folder = Folder::new();
    folder.succeed("profile --model net.prototxt --threads 2 --database db");
    let plan = folder.json(&format!("{PLAN} --database db --offline"));
    assert_eq!(pairs(&plan).0, 0);
    let output = folder.run(&format!("{PLAN} --database db --offline --batch 5"));
    let stderr = text(&output.stderr);
    assert!(!output.status.success() && stderr.lines().count() == 1, "{stderr}");
    for part in ["conv1 Forward", "micro-batch 5", "--offline"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    let output = folder.run(&format!("{PLAN} --no-database --offline"));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn a_profile_is_a_table_to_plan_from_and_can_be_merged() {
    let folder = Folder::new();
    let profiled = folder.json("profile --model net.prototxt --threads 2 --database db --out new/mine.jsonl");
    let all = pairs(&profiled).0;
    assert!(all > 0);
    let known = folder.json("profile --model net.prototxt --threads 2 --database db --out again.jsonl");
    assert_eq!(pairs(&known), (0, all));
    let plan = folder.json("plan --model net.prototxt --device recorded:new/mine.jsonl");
    assert_eq!(plan["plan"]["prediction"], true);

    // Into an empty database elsewhere, and planned from there.
    let merged = folder.json("profile --merge new/mine.jsonl again.jsonl --database other");
    assert_eq!(merged["merged"], 2 * all);
    assert_eq!(segments(&folder, "other").len(), 2);
    let plan = folder.json(&format!("{PLAN} --database other --offline"));
    assert_eq!(pairs(&plan), (0, all));

    // What has no effect is told, as by every command that reads a net.
    folder.write("net.prototxt", ["colour: \"red\"\n".as_bytes(), &folder.read("net.prototxt")].concat());
    let stderr = text(&folder.run("profile --model net.prototxt --threads 2 --database db").stderr);
    assert!(stderr.contains("field 'colour' of the net has no effect here"), "{stderr}");
}

#[test]
fn a_damaged_database_is_one_warning_and_nothing_is_lost() {
    let folder = Folder::new();
    folder.succeed(&format!("{PLAN} --database db"));
    let segment = segments(&folder, "db").remove(0);
    let mut lines: Vec<String> = fs::read_to_string(&segment).unwrap().lines().map(str::to_owned).collect();
    lines[1].truncate(40);
    lines[2].push('}');
    fs::write(&segment, lines.join("\n")).unwrap();
    let output = folder.run(&format!("{PLAN} --database db --json"));
    let stderr = text(&output.stderr);
    assert!(output.status.success() && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.starts_with("warning: ") && stderr.contains("in 2 places"), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(pairs(&report).0, 2, "what could not be read is measured again");
    assert_eq!(fs::read_to_string(&segment).unwrap(), lines.join("\n"));
    folder.write("file", "");
    for file in ["file", "/dev/null"] {
        let output = folder.run(&format!("{PLAN} --database {file}"));
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(&format!("{file} is a file")));
    }
}

/// To be stored is what profiles are made for.
#[test]
fn a_profile_that_cannot_be_stored_fails_before_anything_is_measured() {
    let folder = Folder::new();
    folder.write("file", "");
    for (options, part) in [
        ("--database file/db", "error: the measurement database cannot make file/db"),
        ("--out file/table.jsonl", "error: cannot write file/table.jsonl: Not a directory"),
    ] {
        let output = folder.run(&format!("profile --model net.prototxt --threads 2 {options}"));
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
        assert!(stderr.starts_with(part), "{stderr}");
        assert!(!text(&output.stdout).contains("measured"), "{output:?}");
    }
    // A plan is made all the same.
    let output = folder.run(&format!("{PLAN} --database file/db"));
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("the measurement database cannot make file/db"), "{output:?}");
}

#[test]
fn a_table_that_is_none_is_said_without_talk_of_plans() {
    let folder = Folder::new();
    let output = folder.run("profile --merge /dev/null --database db");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: cannot use the cost table /dev/null: "), "{stderr}");
    let output = folder.run("plan --model net.prototxt --device recorded:");
    let sentence = "error: --device recorded: names no cost table; --device recorded:FILE does\n";
    assert_eq!((output.status.code(), &text(&output.stderr)[..]), (Some(2), sentence));
}
