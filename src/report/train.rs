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
    /// Its mean.
    pub value: f64,
    /// Its weight in the loss; 0 for what is not a loss.
    pub loss_weight: f32,
}

impl From<TestOutput> for OutputReport {
    fn from(TestOutput { name, value, loss_weight }: TestOutput) -> Self {
        Self { name, value, loss_weight }
    }
}

impl fmt::Display for OutputReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name, six_digits(self.value))?;
        if self.loss_weight != 0.0 {
            let weighted = self.value * f64::from(self.loss_weight);
            write!(f, " (* {} = {} loss)", six_digits(f64::from(self.loss_weight)), six_digits(weighted))?;
        }
        Ok(())
    }
}

impl fmt::Display for TestLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Iteration {}, Testing net (#{})", self.iteration, self.net)?;
        let mut outputs = self.outputs.iter().enumerate();
        outputs.try_for_each(|(index, output)| write!(f, "\n    Test net output #{index}: {output}"))
    }
}

/// How a training ended.
#[derive(Clone, Debug, Serialize)]
pub struct TrainSummary {
    /// Iterations of the whole training.
    pub iterations: u64,
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
        let Self { iterations, loss, seconds, images_per_s, .. } = self;
        let loss = six_digits(*loss);
        write!(
            f,
            "Trained to iteration {iterations} in {seconds:.1} s ({images_per_s:.1} images/s): loss = {loss}"
        )?;
        self.accuracies.iter().try_for_each(|output| write!(f, ", test {output}"))
    }
}
