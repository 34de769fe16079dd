//! Runs of the command, a row each.

use super::{Bench, COMMAND, EVERYTHING, Outcome};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, path::PathBuf, thread};

impl Bench {
    pub(super) fn text(&self, name: &str, default: &str) -> String {
        self.options.get(name).map_or(default, String::as_str).to_owned()
    }

    pub(super) fn number(&self, name: &str, default: f64) -> Outcome<f64> {
        Ok(self.options.get(name).map_or(Ok(default), |text| text.parse())?)
    }

    /// Whether the time for all rows is over.
    pub(super) fn is_over(&self) -> Outcome<bool> {
        Ok(self.start.elapsed().as_secs_f64() >= self.number("seconds", 1e6)?)
    }

    /// Whether the device is a recorded one, whose rows are planned.
    pub(super) fn is_recorded(&self) -> bool {
        let device = self.text("device", "h200");
        device == "h200" || device.starts_with("recorded:")
    }

    pub(super) fn say(&mut self, line: &str) -> Outcome<()> {
        println!("{line}");
        if let Some(out) = &mut self.out {
            writeln!(out, "{line}")?;
            out.flush()?;
        }
        Ok(())
    }

    /// What the command prints.
    fn command(&self, words: &[String]) -> Outcome<String> {
        let (all, row) = (self.number("seconds", 1e6)?, self.number("row-seconds", 60.0)?);
        let left = (all - self.start.elapsed().as_secs_f64()).max(0.0);
        self.command_watched(words, Duration::from_secs_f64(row.min(left)), |_| ())
    }

    /// The same within `limit`, shown to `watch` as long as it runs.
    pub(super) fn command_watched(
        &self,
        words: &[String],
        limit: Duration,
        mut watch: impl FnMut(&Child),
    ) -> Outcome<String> {
        let mut command = Command::new(env::current_exe()?);
        command.args(words).env(COMMAND, "1").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (mut stdout, mut stderr) =
            (child.stdout.take().ok_or("no stdout")?, child.stderr.take().ok_or("no stderr")?);
        let read = thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text)
        });
        let complaint = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map(|_| text)
        });
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                return Err(format!("not done in {:.0} s", limit.as_secs_f64()).into());
            }
            watch(&child);
            thread::sleep(Duration::from_millis(50));
        };
        let text = read.join().map_err(|_| "its output cannot be read")??;
        let complaint = complaint.join().map_err(|_| "its errors cannot be read")??;
        match status.success() {
            true => Ok(text),
            false => Err(complaint.lines().last().unwrap_or("failed without a word").to_owned().into()),
        }
    }

    /// A model's name; of a depth, the file of that VGG.
    fn net(&self, net: &str) -> Outcome<String> {
        if net.parse::<usize>().is_err() {
            return Ok(net.to_owned());
        }
        let file: PathBuf = self.folder.path().join(format!("vgg{net}.prototxt"));
        if !file.exists() {
            fs::write(&file, self.command(&words(&format!("model vgg --depth {net}")))?)?;
        }
        Ok(file.display().to_string())
    }

    /// Milliseconds of an iteration, the most and the mean of the bytes that it takes on the device, and the
    /// milliseconds of an iteration in any memory and of the fastest that may be in this one.
    pub(super) fn row(&self, net: &str, batch: usize, policy: &str, budget: &str) -> Outcome<[f64; 5]> {
        let device = self.text("device", "h200");
        let base = format!(
            "--model {} --batch {batch} --device {device} --memory-policy {policy} --device-memory {budget} --math {} --json",
            self.net(net)?,
            self.text("math", "fp32")
        );
        let (report, run) = if self.is_recorded() {
            (self.command(&words(&format!("plan {base}")))?, "")
        } else {
            let database = self.folder.path().display();
            let measured = "--synthetic --iterations 5 --policy adaptive --database";
            (self.command(&words(&format!("time {base} {measured} {database}")))?, "/runs/0")
        };
        let report: Value = serde_json::from_str(&report)?;
        let at = |path: &str| report.pointer(&format!("{run}{path}")).cloned().unwrap_or_default();
        let schedule = at("/schedule");
        let base = (at("/memory/parameters"), at("/memory/arena"));
        let arena = base.1.as_f64().or(schedule["arena"].as_f64()).ok_or("no arena in the report")?;
        let ms = match run {
            "" => schedule["planned_ms"].as_f64(),
            _ => ["/replayed_ms", "/iterations_ms"].into_iter().find_map(|path| median(&at(path))),
        };
        let [unlimited_ms, bound_ms] =
            ["unlimited_ms", "bound_ms"].map(|name| schedule[name].as_f64().unwrap_or_default());
        let mean = mean(&schedule["actions"]).unwrap_or(arena);
        Ok([ms.ok_or("no time in the report")?, arena, mean, unlimited_ms, bound_ms])
    }

    /// The same where everything stays on the device.
    pub(super) fn base(&mut self, net: &str, batch: usize) -> Outcome<[f64; 2]> {
        let key = (net.to_owned(), batch);
        if !self.bases.contains_key(&key) {
            let row = self.row(net, batch, "joint", EVERYTHING);
            self.bases.insert(key.clone(), row.as_ref().ok().map(|&[ms, most, ..]| [ms, most]));
            row?;
        }
        self.bases[&key].ok_or_else(|| "what it is compared with is not known".into())
    }
}

pub(super) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn median(times: &Value) -> Option<f64> {
    let mut times: Vec<f64> = times.as_array()?.iter().filter_map(Value::as_f64).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// The mean of what lies on the device, over the time of computation.
fn mean(actions: &Value) -> Option<f64> {
    let (mut sum, mut whole_ms) = (0.0, 0.0);
    for action in actions.as_array()?.iter().filter(|action| action["stream"] == "Compute") {
        let ms = action["end_ms"].as_f64()? - action["start_ms"].as_f64()?;
        sum += ms * action["alive"].as_f64()?;
        whole_ms += ms;
    }
    (whole_ms > 0.0).then_some(sum / whole_ms)
}
