//! Testing what is trained, on the way.

use super::Solver;
use crate::error::{NetError, Result};
use crate::run::{Execution, MiniBatch};
use crate::stop::Stop;
use serde::Serialize;
use std::iter;

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
    /// Runs the tests of test net `index`, and tells `observe` the number of each mini-batch that is done: the mean of
    /// every output, or `None` if `stop` was requested between them. Then, and after an error, all tests since the last
    /// iteration are given up, as in [`Solver::step_unless`].
    ///
    /// # Errors
    /// What a layer reports of its data.
    ///
    /// # Panics
    /// There is no such test net.
    pub fn test(
        &mut self,
        index: usize,
        stop: &Stop,
        mut observe: impl FnMut(usize),
    ) -> Result<Option<Vec<TestOutput>>> {
        let iterations = self.training.spec.tests[index].iterations;
        let result = self.running.test(&[(index + 1, iterations)], stop, |_, (_, number), _| {
            observe(number);
            Ok::<_, NetError>(())
        });
        match result {
            Ok((outputs, done)) if done == iterations => Ok(Some(outputs)),
            result => {
                let given_up = self.give_up();
                Ok(result.and_then(|_| given_up.map(|()| None))?)
            }
        }
    }
}

impl Execution {
    /// Runs the `wanted` nets, by their numbers, forward on so many mini-batches each, or until `stop` is requested
    /// between them, and tells `observe` of each the net, how many were done before, and its outputs. Returns the mean
    /// of every output over all samples, and over how many mini-batches.
    ///
    /// # Errors
    /// What a layer reports of its data, and what `observe` returns.
    pub fn test<E: From<NetError>>(
        &mut self,
        wanted: &[(usize, usize)],
        stop: &Stop,
        mut observe: impl FnMut(&Self, (usize, usize), &[TestOutput]) -> Result<(), E>,
    ) -> Result<(Vec<TestOutput>, usize), E> {
        let (mut sums, mut done, mut weights, mut first) = (Vec::<TestOutput>::new(), 0, 0.0, None);
        let of_net = |&(net, iterations): &(usize, usize)| (0..iterations).map(move |number| (net, number));
        for (net, number) in wanted.iter().flat_map(of_net).take_while(|_| !stop.is_requested()) {
            self.iterate(net, MiniBatch::new(number as u64))?;
            let outputs = self.outputs(net)?;
            observe(self, (net, done), &outputs)?;
            done += 1;
            // Each sample counts once: a mean over fewer weighs less.
            let mini_batch = self.nets()[net].mini_batch() as f64;
            let weight = mini_batch / *first.get_or_insert(mini_batch);
            weights += weight;
            if sums.is_empty() {
                sums = outputs;
                continue;
            }
            for (sum, output) in sums.iter_mut().zip(outputs) {
                let values = output.values.into_iter().map(Some).chain(iter::repeat(None));
                for (sum, value) in sum.values.iter_mut().zip(values) {
                    // A smaller mini-batch has fewer values of a blob with some for each sample: others keep their mean.
                    *sum = value.map_or(*sum * weights / (weights - weight), |value| *sum + value * weight);
                }
            }
        }
        sums.iter_mut().flat_map(|sum| &mut sum.values).for_each(|value| *value /= weights);
        Ok((sums, done))
    }

    /// The elements of the blob `name` of net number `net` after an iteration, if it is an output or was to be
    /// [kept](crate::Net::keep_blob); others may have been overwritten by then.
    ///
    /// # Errors
    /// There is no blob of this name, it is gone by then, or as [`Net::check`](crate::Net::check).
    pub fn blob(&self, net: usize, name: &str) -> Result<Vec<f64>> {
        let (of, layout) = (&self.nets()[net], &self.layout().nets[net]);
        let value = of.blob(name)?;
        if layout.data(value, layout.end()).len == 0 {
            let gone = "is gone at the end of an iteration: have it kept before the net is laid out";
            return Err(of.error(format!("blob '{name}' {gone}")));
        }
        self.values(net, value)
    }

    /// The outputs of net number `net` after an iteration.
    pub(super) fn outputs(&self, net: usize) -> Result<Vec<TestOutput>> {
        let of = &self.nets()[net];
        let outputs = of.outputs().map(|(value, loss_weight)| {
            let name = of.graph().values[value].name.clone();
            Ok(TestOutput { name, values: self.values(net, value)?, loss_weight })
        });
        outputs.collect()
    }
}
