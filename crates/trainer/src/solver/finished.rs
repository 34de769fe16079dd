//! The end of the last finished iteration, to which an iteration that cannot be finished is rolled back.

use super::Solver;
use super::restore::{positions, set_positions};
use crate::error::NetError;
use std::collections::BTreeMap;
use tensor::{Device, Format, Span};

/// What forward passes change that outlives them, as it was between two iterations.
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// Of all data layers.
    pub(super) positions: BTreeMap<String, u64>,
    /// The statistics of batch norm, one after the other, if they are kept.
    statistics: Vec<u8>,
}

impl Solver {
    /// Notes that an iteration is finished.
    pub(super) fn note_finished(&mut self) -> Result<(), NetError> {
        let positions = positions(self.running.nets());
        let mut statistics = Vec::new();
        for span in self.statistics() {
            statistics.extend_from_slice(&self.running.read(span)?);
        }
        self.finished = Finished { positions, statistics };
        Ok(())
    }

    /// Rolls back to the last finished iteration: gives up mini-batches of the next one, and tests. Training that
    /// continues from here, or from a snapshot, is as if they had never begun.
    ///
    /// On a GPU without `iter_size` there is one exception: the statistics of batch norm have seen the mini-batch that
    /// failed. To copy them in each iteration would slow down all trainings for the sake of those that fail.
    pub(super) fn give_up(&mut self) -> Result<(), NetError> {
        set_positions(self.running.nets_mut(), &self.finished.positions);
        let mut kept = &self.finished.statistics[..];
        for span in self.statistics() {
            let (values, rest) = kept.split_at(span.len);
            kept = rest;
            self.running.fill(span, |out| -> Result<(), NetError> {
                out.copy_from_slice(values);
                Ok(())
            })?;
        }
        Ok(self.running.forget()?)
    }

    /// Where the training net keeps what its layers change themselves, as bytes; nothing if that is not kept. On a
    /// processor they are a few numbers to copy. From a GPU each of them takes as long as a layer: too long, unless an
    /// iteration has several mini-batches.
    fn statistics(&self) -> Vec<Span> {
        let is_kept = matches!(self.running.device(), Device::Cpu(_)) || self.spec.iter_size > 1;
        let params = self.running.params().filter(|(param, _)| is_kept && !param.declaration.learned);
        params.map(|(_, spans)| spans.data.tagged(Format::U8)).collect()
    }
}
