//! How fast a training goes, and the bar that shows it.

use crate::progress;
use indicatif::ProgressBar;
use std::time::{Duration, Instant};
use trainer::solver::{StepReport, TestOutput};

/// Measures the speed of iterations; tests and output are left out.
pub(super) struct Meter {
    pub(super) bar: ProgressBar,
    images_per_iteration: usize,
    /// What it takes, in words.
    memory: String,
    /// Of all iterations: how many, and their time, without tests and output.
    pub(super) all: (u32, Duration),
    /// Of those since one was last displayed.
    pub(super) recent: (u32, Duration),
}

impl Meter {
    /// A meter for iterations `first..last` of so many images each.
    pub(super) fn new(first: u64, last: usize, images_per_iteration: usize, memory: String) -> Self {
        let bar = progress::bar(last as u64, "training");
        bar.set_position(first);
        bar.reset_eta();
        let none = (0, Duration::ZERO);
        Self { bar, images_per_iteration, memory, all: none, recent: none }
    }

    pub(super) fn step<T, E>(&mut self, body: impl FnOnce() -> Result<Option<T>, E>) -> Result<Option<T>, E> {
        let start = Instant::now();
        let result = body();
        // What is given up counts for nothing.
        let done = u32::from(matches!(result, Ok(Some(_))));
        for (count, time) in [&mut self.all, &mut self.recent] {
            *count += done;
            *time += start.elapsed() * done;
        }
        result
    }

    /// Shows an iteration on the bar, with the net's other outputs.
    pub(super) fn show(&mut self, step: &StepReport, epoch: Option<f64>, outputs: &[TestOutput]) {
        self.bar.inc(1);
        let (speed, memory) = (self.speed(self.all), &self.memory);
        let (loss, lr) = (step.smoothed_loss, step.rate);
        let epoch = epoch.map_or_else(String::new, |epoch| format!("epoch {epoch:.2}, "));
        let outputs: String =
            outputs.iter().map(|output| format!("{} {:.3}, ", output.name, output.values[0])).collect();
        let message = format!("loss {loss:.4}, {epoch}{outputs}lr {lr:.3e}, {memory}, {speed:.0} images/s");
        self.bar.set_message(message);
    }

    /// Images a second of so many iterations in so long.
    pub(super) fn speed(&self, (count, time): (u32, Duration)) -> f64 {
        let images = f64::from(count) * self.images_per_iteration as f64;
        if time.is_zero() { 0.0 } else { images / time.as_secs_f64() }
    }
}
