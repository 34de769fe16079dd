//! What a training writes for machines while it runs: a log of JSON lines, and TensorBoard's files.

use super::tensorboard::Board;
use crate::commands::draw::{check, refused};
use crate::report::{Header, StepLine, TestLines, TrainReport};
use crate::{Result, args::TrainArgs};
use figures::PlanReport;
use files::{read_regular, write_atomically};
use serde::Serialize;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf, absolute};
use trainer::{Solver, host::command_line};

/// Where the numbers of a training go besides stdout.
#[derive(Default)]
pub(super) struct Metrics {
    log: Option<(PathBuf, File)>,
    board: Option<(PathBuf, Board)>,
}

/// A line of the log.
#[derive(Serialize)]
struct Line<'a, T> {
    kind: &'static str,
    #[serde(flatten)]
    of: &'a T,
}

/// What runs, how and where.
#[derive(Serialize)]
struct Manifest<'a> {
    iteration: u64,
    version: &'static str,
    command: Vec<String>,
    seed: u64,
    snapshot_prefix: &'a str,
    run: &'a Header,
    plan: &'a PlanReport,
}

impl Metrics {
    /// Opens what is wanted for a training that begins where its solver is, resumed `from` the snapshot of that if there
    /// is one, and says in the log what runs, how and where. A log of its earlier part is cut off where the snapshot was
    /// written, and gets its line if the training had ended before that was written.
    pub(super) fn open(args: &TrainArgs, of: (&TrainReport, &Solver), from: Option<&str>) -> Result<Self> {
        let (mut metrics, first) = (Self::default(), of.1.iteration());
        if let Some(path) = &args.log {
            let goes_on = args.resume || from.is_some();
            let (file, has_snapshot) =
                open_log(path, first, goes_on).map_err(|source| refused(path, source))?;
            metrics.log = Some((path.clone(), file));
            metrics.manifest(of)?;
            if let Some(snapshot) = from.filter(|_| !has_snapshot) {
                metrics.snapshot(first, 0.0, snapshot)?;
            }
        }
        if let Some(folder) = &args.tensorboard {
            let board = Board::create(folder, first).map_err(|source| refused(folder, source))?;
            metrics.board = Some((folder.clone(), board));
        }
        Ok(metrics)
    }

    /// Refuses what cannot be written, or is not the log of a training, before anything is measured; and a log that a
    /// training with snapshots as `prefix`, which resumes from a `snapshot` if there is one, would take from another one.
    pub(super) fn check(args: &TrainArgs, prefix: &Path, snapshot: Option<&Path>) -> Result<()> {
        let events = args.tensorboard.as_ref().map(|folder| folder.join("events"));
        check(args.log.iter().chain(&events), &args.solver)?;
        let has_lines = |log: &&PathBuf| fs::metadata(log).is_ok_and(|file| file.len() > 0);
        let Some(path) = args.log.as_ref().filter(has_lines) else { return Ok(()) };
        let text = read_regular(path).map_err(|source| refused(path, source))?;
        let text = String::from_utf8_lossy(&text);
        let begins_with = |kind| text.starts_with(&format!("{{\"kind\":\"{kind}\""));
        let (resumes, field) = (args.resume || args.snapshot.is_some(), "\"snapshot_prefix\":");
        // Earlier versions wrote the prefix as it was given.
        let mut own = [prefix.to_owned(), whole(prefix)].into_iter();
        let mut is_own =
            own.any(|prefix| text.contains(&format!("{field}{}", json!(prefix.to_string_lossy()))));
        let name = snapshot.and_then(Path::file_name).map(|name| name.to_string_lossy());
        is_own |= name.is_some_and(|name| text.contains(&*name));
        let is_others = text.contains(field) && !is_own;
        let lock = File::open(path).map(|log| log.try_lock());
        let faults = [
            // An earlier version could write the line of a snapshot first.
            (!begins_with("manifest") && !begins_with("snapshot"), "it is not the log of a training"),
            (!resumes, "it is the log of another training already; only a resumed one goes on in it"),
            (is_others, "it is the log of a training with another snapshot prefix"),
            (matches!(lock, Ok(Err(TryLockError::WouldBlock))), "another training writes into it"),
        ];
        let fault = faults.into_iter().find(|(is_one, _)| *is_one);
        fault.map_or(Ok(()), |(_, reason)| Err(refused(path, io::Error::other(reason))))
    }

    /// The first line of a training and of each resumed one.
    fn manifest(&mut self, (report, solver): (&TrainReport, &Solver)) -> Result<()> {
        let (iteration, seed) = (solver.iteration(), solver.seed());
        let prefix = whole(&solver.spec().snapshot.prefix);
        let snapshot_prefix = &*prefix.to_string_lossy();
        let (version, command) = (env!("CARGO_PKG_VERSION"), command_line());
        let (run, plan) = (&report.header, &report.plan);
        // Not by way of a JSON value, which would turn numbers of single precision into others of double.
        self.line("manifest", &Manifest { iteration, version, command, seed, snapshot_prefix, run, plan })
    }

    pub(super) fn step(&mut self, line: &StepLine) -> Result<()> {
        self.line("display", line)?;
        let StepLine { step, images_per_s, outputs, .. } = line;
        let rates = [("lr", f64::from(step.rate)), ("images_per_s", *images_per_s)];
        let outputs = outputs.iter().map(|output| (output.name.as_str(), output.values[0]));
        for (name, value) in [("loss", step.smoothed_loss)].into_iter().chain(rates).chain(outputs) {
            self.scalar(&format!("train/{name}"), step.iteration, value)?;
        }
        Ok(())
    }

    pub(super) fn test(&mut self, lines: &TestLines) -> Result<()> {
        self.line("test", lines)?;
        for output in lines.outputs.iter().filter(|output| output.values.len() == 1) {
            self.scalar(&format!("test{}/{}", lines.net, output.name), lines.iteration, output.values[0])?;
        }
        Ok(())
    }

    pub(super) fn snapshot(&mut self, iteration: u64, seconds: f64, path: &str) -> Result<()> {
        self.line("snapshot", &json!({ "iteration": iteration, "seconds": seconds, "path": path }))
    }

    /// Each line in one piece, so that none is missing or cut when the process is killed.
    fn line(&mut self, kind: &'static str, of: &impl Serialize) -> Result<()> {
        let Some((path, file)) = &mut self.log else { return Ok(()) };
        let mut text = serde_json::to_string(&Line { kind, of }).map_err(io::Error::from)?;
        text.push('\n');
        file.write_all(text.as_bytes()).map_err(|source| refused(path, source))
    }

    fn scalar(&mut self, tag: &str, step: u64, value: f64) -> Result<()> {
        let Some((folder, board)) = &mut self.board else { return Ok(()) };
        board.scalar(tag, step, value as f32).map_err(|source| refused(folder, source))
    }
}

/// The one name of a path that has many, as far as its folder is there.
fn whole(path: &Path) -> PathBuf {
    let path = absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(path.file_name()).map(|(folder, name)| folder.join(name)).unwrap_or(path)
}

/// The log, at its end, or where a resumed training goes on; and whether the snapshot of iteration `first` is in it.
fn open_log(path: &Path, first: u64, is_resumed: bool) -> io::Result<(File, bool)> {
    let mut has_snapshot = false;
    if is_resumed && path.exists() {
        let mut kept = String::new();
        for line in String::from_utf8_lossy(&read_regular(path)?).split_inclusive('\n') {
            let Ok(read) = serde_json::from_str::<Value>(line) else { continue };
            // A snapshot is written behind what was done before it; all else of its iteration comes after it.
            let (iteration, is_snapshot) = (read["iteration"].as_u64(), read["kind"] == "snapshot");
            // Where it is resumed a second time from one place, the manifest of the first goes, and a new one comes.
            if kept.is_empty() && read["kind"] != "manifest" {
                continue;
            }
            has_snapshot |= is_snapshot && iteration == Some(first);
            if iteration.is_some_and(|iteration| iteration < first + u64::from(is_snapshot)) {
                kept = kept + line.trim_end() + "\n";
            }
        }
        write_atomically(path, |file| file.write_all(kept.as_bytes()))?;
    }
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    // Where the file system has locks.
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::Error::other("another training writes into it")),
        _ => Ok((file, has_snapshot)),
    }
}
