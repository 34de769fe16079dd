//! What a training says on the way, and at its end.

use super::number::six_digits;
use serde::Serialize;
use std::fmt;
use trainer::solver::{StepReport, TestOutput};

/// The state of a training at one iteration.
#[derive(Clone, Debug, Serialize)]
pub struct StepLine {
    /// The iteration, counted from 0.
    pub iteration: u64,
    /// Its loss, averaged over the last `average_loss` iterations.
    pub loss: f64,
    /// Its learning rate.
    pub lr: f32,
    /// Samples a second since the last such line.
    pub images_per_s: f64,
}

impl StepLine {
    /// The line for `step`, at a speed of `images_per_s`.
    pub fn new(step: &StepReport, images_per_s: f64) -> Self {
        Self { iteration: step.iteration, loss: step.smoothed_loss, lr: step.rate, images_per_s }
    }
}

impl fmt::Display for StepLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iteration, loss, lr, images_per_s } = self;
        let (loss, lr) = (six_digits(*loss), six_digits(f64::from(*lr)));
        write!(f, "Iteration {iteration}, loss = {loss}, lr = {lr} ({images_per_s:.1} images/s)")
    }
}

/// The outputs of one test net at one iteration.
#[derive(Clone, Debug, Serialize)]
pub struct TestLines {
    /// Iterations done.
    pub iteration: u64,
    /// The test net.
    pub net: usize,
    /// Its outputs.
    pub outputs: Vec<OutputReport>,
}

/// The mean of one output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputReport {
    /// The blob.
    pub name: String,
    /// Its mean, if it is a single value.
    pub value: Option<f64>,
    /// The mean of each of its values.
    pub values: Vec<f64>,
    /// Its weight in the loss; 0 for what is not a loss.
    pub loss_weight: f32,
}

impl From<TestOutput> for OutputReport {
    fn from(TestOutput { name, values, loss_weight }: TestOutput) -> Self {
        let value = if let [value] = values[..] { Some(value) } else { None };
        Self { name, value, values, loss_weight }
    }
}

impl OutputReport {
    /// Its part of the loss.
    pub fn loss(&self) -> f64 {
        self.values.iter().sum::<f64>() * f64::from(self.loss_weight)
    }

    /// A line for each value, as Caffe prints them.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.values.iter().map(|&value| {
            let line = format!("{} = {}", self.name, six_digits(value));
            if self.loss_weight == 0.0 {
                return line;
            }
            let weight = f64::from(self.loss_weight);
            format!("{line} (* {} = {} loss)", six_digits(weight), six_digits(value * weight))
        })
    }
}

impl fmt::Display for TestLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Iteration {}, Testing net (#{})", self.iteration, self.net)?;
        let mut lines = self.outputs.iter().flat_map(OutputReport::lines).enumerate();
        lines.try_for_each(|(index, line)| write!(f, "\n    Test net output #{index}: {line}"))
    }
}

/// How a training ended.
#[derive(Clone, Debug, Serialize)]
pub struct TrainSummary {
    /// Iterations done, those before this run included.
    pub iterations: u64,
    /// Iterations of the whole training: more, if it was stopped.
    pub max_iter: usize,
    /// The last loss.
    pub loss: f64,
    /// Seconds of this run's iterations and tests.
    pub seconds: f64,
    /// Samples of training a second, the time of tests left out.
    pub images_per_s: f64,
    /// Outputs of the last tests that are not losses.
    pub accuracies: Vec<OutputReport>,
    /// The snapshot at the end.
    pub snapshot: Option<String>,
    /// The most that was ever resident, if the system says.
    pub peak_resident_bytes: Option<u64>,
}

impl fmt::Display for TrainSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iterations, max_iter, loss, seconds, images_per_s, .. } = self;
        match *iterations < *max_iter as u64 {
            true => write!(f, "Stopped at iteration {iterations} of {max_iter} after {seconds:.1} s")?,
            false => write!(f, "Trained to iteration {iterations} in {seconds:.1} s")?,
        }
        write!(f, " ({images_per_s:.1} images/s): loss = {}", six_digits(*loss))?;
        let single = self.accuracies.iter().filter(|output| output.value.is_some());
        single.flat_map(OutputReport::lines).try_for_each(|line| write!(f, ", test {line}"))
    }
}
