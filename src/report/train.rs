//! What a training says on the way, and at its end.

use figures::six_digits;
use planner::Bytes;
use serde::Serialize;
use std::fmt;
use trainer::solver::{StepReport, TestOutput};

/// The state of a training at one iteration.
#[derive(Clone, Debug, Serialize)]
pub struct StepLine {
    /// What the iteration said.
    #[serde(flatten)]
    pub step: StepReport,
    /// Samples a second since the last such line.
    pub images_per_s: f64,
}

impl fmt::Display for StepLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step: StepReport { iteration, smoothed_loss, rate, .. }, images_per_s } = self;
        let (loss, lr) = (six_digits(*smoothed_loss), six_digits(f64::from(*rate)));
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
    pub outputs: Vec<TestOutput>,
}

/// A line for each value of `output`, as Caffe prints them.
pub fn output_lines(output: &TestOutput) -> impl Iterator<Item = String> {
    let TestOutput { name, values, loss_weight } = output;
    let weight = f64::from(*loss_weight);
    values.iter().map(move |&value| match weight {
        0.0 => format!("{name} = {}", six_digits(value)),
        _ => format!(
            "{name} = {} (* {} = {} loss)",
            six_digits(value),
            six_digits(weight),
            six_digits(value * weight)
        ),
    })
}

impl fmt::Display for TestLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Iteration {}, Testing net (#{})", self.iteration, self.net)?;
        let mut lines = self.outputs.iter().flat_map(output_lines).enumerate();
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
    pub accuracies: Vec<TestOutput>,
    /// The snapshot at the end.
    pub snapshot: Option<String>,
    /// The most that was ever resident, if the system says.
    pub peak_resident: Option<Bytes>,
}

impl fmt::Display for TrainSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iterations, max_iter, loss, seconds, images_per_s, .. } = self;
        match *iterations < *max_iter as u64 {
            true => write!(f, "Stopped at iteration {iterations} of {max_iter} after {seconds:.1} s")?,
            false => write!(f, "Trained to iteration {iterations} in {seconds:.1} s")?,
        }
        write!(f, " ({images_per_s:.1} images/s): loss = {}", six_digits(*loss))?;
        let mut single =
            self.accuracies.iter().filter(|output| output.values.len() == 1).flat_map(output_lines);
        single.try_for_each(|line| write!(f, ", test {line}"))
    }
}
