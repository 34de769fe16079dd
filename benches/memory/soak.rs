//! Long trainings, in all of the memory and in a part of it.

use super::{Bench, EVERYTHING, Outcome, rows::words};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

impl Bench {
    /// Trains ResNet-50 keeping everything, the same with convolutions of another accuracy, and in half of that memory:
    /// memory flat, and mean losses under the two policies at most twice as far apart as other roundings make them.
    pub(super) fn soak(&mut self) -> Outcome<()> {
        let (batch, iterations) =
            (self.number("batch", 32.0)? as usize, self.number("iterations", 2000.0)? as usize);
        let (model, device) = (self.text("model", "resnet50"), self.text("device", "cuda:0"));
        // A solver of one's own brings its images.
        let solver = self.text("solver", &model);
        let images = if solver == model { "--synthetic=3x224x224" } else { "" };
        let [_, most, ..] = self.row(&model, batch, "joint", EVERYTHING)?;
        let part = self.number("part", 0.5)?;
        let mut curves = Vec::new();
        let budget = format!("{}", (most * part) as u64);
        for (policy, budget, accuracy) in
            [("keep", EVERYTHING, ""), ("keep", EVERYTHING, "--max-error 1e-5"), ("joint", &budget, "")]
        {
            let train = format!(
                "train --solver {solver} --batch {batch} --max-iter {iterations} --device {device} {images} --no-test \
                 --no-snapshot --policy adaptive --memory-policy {policy} --device-memory {budget} {accuracy} \
                 --database {} --json",
                self.folder.path().display()
            );
            let (mut seen, mut last) = (Vec::new(), Instant::now());
            let limit = Duration::from_secs_f64(self.number("seconds", 3600.0)?);
            let report = self.command_watched(&words(&train), limit, |child| {
                if last.elapsed() > Duration::from_secs(1) {
                    seen.extend(used(child));
                    last = Instant::now();
                }
            })?;
            let report: Value = serde_json::from_str(&report)?;
            let steps = report["steps"].as_array().cloned().unwrap_or_default();
            curves.push(steps.iter().filter_map(|step| step["smoothed_loss"].as_f64()).collect::<Vec<_>>());
            let speed = report["summary"]["images_per_s"].as_f64().unwrap_or_default();
            // The first third loads, records and fills caches.
            let flat = &seen[seen.len() / 3..];
            let most =
                |half: &[[u64; 2]], place: usize| half.iter().map(|used| used[place]).max().unwrap_or(0);
            let halves = flat.split_at(flat.len() / 2);
            let grown = [0, 1].map(|place| [most(halves.0, place), most(halves.1, place)]);
            self.say(&format!(
                "{policy:6} in {budget}: {speed:.0} images/s; MiB in its later thirds, host {:?}, GPU {:?}",
                grown[0], grown[1]
            ))?;
            if grown.iter().any(|[before, after]| *after as f64 > *before as f64 * 1.01 + 16.0) {
                return Err(format!("memory grows under {policy}").into());
            }
        }
        let [keep, rounded, joint] = &curves[..] else { unreachable!("three trainings") };
        let furthest = |curve: &[f64]| {
            let apart = keep.iter().zip(curve).map(|(a, b)| (a - b).abs() / a.abs().max(0.1));
            apart.fold(0.0, f64::max)
        };
        let [by_rounding, apart] = [rounded, joint].map(|curve| furthest(curve));
        self.say(&format!(
            "losses at {} steps: {keep:?}, {rounded:?} and {joint:?}; at most {:.2} and {:.2} % from the first",
            keep.len(),
            100.0 * by_rounding,
            100.0 * apart
        ))?;
        if keep.is_empty() || [rounded, joint].iter().any(|curve| curve.len() != keep.len()) {
            return Err("a training displayed no loss, or others at other steps".into());
        }
        match apart <= (2.0 * by_rounding).max(0.01) {
            true => Ok(()),
            false => Err("the losses differ".into()),
        }
    }
}

/// MiB of the host and of the GPU that a process has, as Linux and nvidia-smi know it.
fn used(child: &Child) -> Option<[u64; 2]> {
    let statm = fs::read_to_string(format!("/proc/{}/statm", child.id())).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    let query = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"];
    let output = Command::new("nvidia-smi").args(query).output().ok();
    let gpu =
        output.and_then(|output| String::from_utf8(output.stdout).ok()?.lines().next()?.trim().parse().ok());
    Some([pages * 4 / 1024, gpu.unwrap_or(0)])
}
