//! Testing what is trained, on the way.

use super::{Solver, TrainError};
use crate::{
    error::NetError,
    net::{Net, NetLayout, Output, run::Iteration},
    stop::Stop,
};
use serde::Serialize;
use tensor::{Accumulate, Arena};

/// An output of a test net.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TestOutput {
    /// The blob's name.
    pub name: String,
    /// Each of its values, or their means over all test mini-batches.
    pub values: Vec<f64>,
    /// Its weight in the objective; 0 for what is not a loss.
    pub loss_weight: f32,
}

impl TestOutput {
    /// Its part of the loss.
    pub fn loss(&self) -> f64 {
        self.values.iter().sum::<f64>() * f64::from(self.loss_weight)
    }
}

impl Solver {
    /// Runs the tests of test net `index`: the mean of every output.
    ///
    /// # Errors
    /// As [`Solver::test_unless`].
    pub fn test(&mut self, index: usize) -> Result<Vec<TestOutput>, TrainError> {
        Ok(self.test_unless(index, &Stop::default())?.expect("nobody asks to stop"))
    }

    /// As [`Solver::test`]; `None` if `stop` was requested between its mini-batches. Then, and after an error, all tests
    /// since the last iteration are given up, as in [`Solver::step_unless`].
    ///
    /// # Errors
    /// What a layer reports of its data.
    pub fn test_unless(&mut self, index: usize, stop: &Stop) -> Result<Option<Vec<TestOutput>>, TrainError> {
        let iterations = self.spec.tests[index].iterations;
        let (net, layout) = (&mut self.tests[index], &self.layout.nets[index + 1]);
        let device = self.device.clone();
        let result = device.run(|| test(net, layout, &mut self.arena, iterations, stop));
        if !matches!(result, Ok(Some(_))) {
            let given_up = self.give_up();
            return Ok(result.and_then(|_| given_up.map(|()| None))?);
        }
        Ok(result?)
    }
}

/// Runs `iterations` forward passes of `net` and averages its outputs; `None` if `stop` was requested between them.
fn test(
    net: &mut Net,
    layout: &NetLayout,
    arena: &mut Arena,
    iterations: usize,
    stop: &Stop,
) -> Result<Option<Vec<TestOutput>>, NetError> {
    let mut sums: Option<Vec<TestOutput>> = None;
    for number in 0..iterations as u64 {
        if stop.is_requested() {
            return Ok(None);
        }
        net.forward(layout, arena, Iteration { number, accumulate: Accumulate::Replace }, |_| Ok(()))?;
        add(&mut sums, outputs(net, layout, arena)?);
    }
    Ok(Some(mean(sums, iterations)))
}

/// The outputs of `net` after a forward pass.
///
/// # Errors
/// As [`Net::check`].
pub fn outputs(net: &Net, layout: &NetLayout, arena: &Arena) -> Result<Vec<TestOutput>, NetError> {
    let read = |output: Output<'_>| {
        let values = net.values(layout, arena, output.value)?;
        Ok(TestOutput { name: output.name.to_owned(), values, loss_weight: output.loss_weight })
    };
    net.outputs().map(read).collect()
}

/// Adds `outputs` of one mini-batch to the `sums` of those before.
pub fn add(sums: &mut Option<Vec<TestOutput>>, outputs: Vec<TestOutput>) {
    let Some(sums) = sums else {
        *sums = Some(outputs);
        return;
    };
    for (sum, output) in sums.iter_mut().zip(outputs) {
        sum.values.iter_mut().zip(output.values).for_each(|(sum, value)| *sum += value);
    }
}

/// The means of what [`add`] has added up over so many mini-batches.
pub fn mean(sums: Option<Vec<TestOutput>>, mini_batches: usize) -> Vec<TestOutput> {
    let mut means = sums.unwrap_or_default();
    let values = means.iter_mut().flat_map(|mean| &mut mean.values);
    values.for_each(|value| *value /= mini_batches as f64);
    means
}
