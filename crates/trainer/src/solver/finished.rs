//! The end of the last finished iteration: where an iteration that cannot be finished leads back to.

use super::Solver;
use crate::error::NetError;
use tensor::{Device, Format, Span};

/// What forward passes change that outlives them, as it was between two iterations.
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// Of all data layers: of the training net, then of the test nets.
    positions: Vec<u64>,
    /// The statistics of batch norm, one after the other, if they are kept.
    statistics: Vec<u8>,
}

impl Solver {
    /// Notes that an iteration is finished.
    pub(super) fn note_finished(&mut self) -> Result<(), NetError> {
        let Self { finished, train, tests, arena, .. } = self;
        finished.positions.clear();
        let nets = std::iter::once(&*train).chain(tests.iter());
        finished.positions.extend(nets.flat_map(|net| net.positions().map(|(_, position)| position)));
        finished.statistics.clear();
        if keeps_statistics(&self.device, self.spec.iter_size) {
            for span in statistics(train, &self.layout.nets[0].params) {
                finished.statistics.extend_from_slice(&arena.read(span)?);
            }
        }
        Ok(())
    }

    /// Gives up what was done since the last finished iteration: mini-batches of another one, and tests. What goes on from
    /// here, or from a snapshot of here, is as if that had never been begun.
    ///
    /// On a GPU without `iter_size` there is one exception: the statistics of batch norm have seen the mini-batch that
    /// failed. To copy them in each iteration would slow down all trainings for the sake of those that fail.
    ///
    /// # Errors
    /// A GPU is lost.
    pub(super) fn give_up(&mut self) -> Result<(), NetError> {
        let Self { finished, train, tests, arena, updater, .. } = self;
        updater.clear();
        let mut positions = finished.positions.iter();
        for net in std::iter::once(&mut *train).chain(tests) {
            let names: Vec<String> = net.positions().map(|(name, _)| name.to_owned()).collect();
            for (name, &position) in names.iter().zip(&mut positions) {
                net.set_position(name, position);
            }
        }
        let mut kept = &finished.statistics[..];
        if keeps_statistics(&self.device, self.spec.iter_size) {
            for span in statistics(train, &self.layout.nets[0].params) {
                let (values, rest) = kept.split_at(span.len);
                kept = rest;
                arena.fill(span, |out| -> Result<(), NetError> {
                    out.copy_from_slice(values);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

/// On a processor they are a few numbers to copy. From a GPU each of them takes as long as a layer: too long, unless an
/// iteration has several mini-batches.
fn keeps_statistics(device: &Device, iter_size: usize) -> bool {
    matches!(device, Device::Cpu(_)) || iter_size > 1
}

/// Where the training net keeps what its layers change themselves, as bytes.
fn statistics<'a>(
    train: &'a crate::Net,
    params: &'a [crate::net::layout::ParamSpans],
) -> impl Iterator<Item = Span> + 'a {
    let params = train.graph().params.iter().zip(params);
    params.filter(|(param, _)| !param.declaration.learned).map(|(_, spans)| spans.data.tagged(Format::U8))
}
