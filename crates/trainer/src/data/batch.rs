//! Mini-batches put together from samples.

use super::{Dataset, NetError, Phase, Result, Sample, Transform, TransformScratch, order::Order};
use crate::group::Share;
use rayon::prelude::*;
use std::sync::{Arc, Mutex, PoisonError, atomic::AtomicBool, atomic::Ordering};

/// How samples are put into mini-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Samples per mini-batch.
    pub mini_batch: usize,
    /// Selects random or centred crops.
    pub phase: Phase,
    /// Seed of everything random.
    pub seed: u64,
    /// A new random order in every epoch, instead of the order of the data set (Caffe's `Data` layer).
    pub shuffle: bool,
    /// Of several ranks each reads its own mini-batch, the first that of the first samples.
    pub share: Share,
}

impl LoaderOptions {
    /// Samples that all ranks together consume at a time.
    pub(super) fn stride(&self) -> u64 {
        (self.mini_batch * self.share.ranks) as u64
    }
}

/// What mini-batches are made from; shared with the threads that prepare them.
pub(super) struct BatchSource {
    pub(super) dataset: Arc<dyn Dataset>,
    pub(super) transform: Transform,
    pub(super) options: LoaderOptions,
    pub(super) order: Mutex<Order>,
    /// Nobody waits for a mini-batch any more.
    pub(super) abandoned: AtomicBool,
}

impl BatchSource {
    pub(super) fn data_len(&self) -> usize {
        self.options.mini_batch * self.sample_len()
    }

    fn sample_len(&self) -> usize {
        self.transform.out_shape().iter().product()
    }

    /// Elements of a mini-batch: data, then labels.
    pub(super) fn len(&self) -> usize {
        self.data_len() + self.options.mini_batch
    }

    /// Fills this rank's mini-batch of those that begin at `position`. The first of several bad samples is reported.
    pub(super) fn fill(&self, position: u64, data: &mut [f32], labels: &mut [f32]) -> Result<()> {
        let LoaderOptions { mini_batch, share, seed, shuffle, .. } = self.options;
        let first = position + (share.rank * mini_batch) as u64;
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let (len, shuffled_by) = (self.dataset.facts().len, shuffle.then_some(seed));
        let index = |position| order.index(position, len, shuffled_by);
        let indices: Vec<usize> = (first..first + mini_batch as u64).map(index).collect();
        // By the threads of the pool that it runs in.
        let slots = data.par_chunks_exact_mut(self.sample_len()).zip(labels).zip(&indices).enumerate();
        let new = <(Sample, TransformScratch)>::default;
        let filled = slots.map_init(new, |(sample, scratch), (n, ((out, label), &index))| {
            if self.abandoned.load(Ordering::Relaxed) {
                return Err(NetError::Refused("the mini-batch is not wanted any more".to_owned()));
            }
            self.dataset.read_into(index, sample)?;
            let transformed = self.transform.apply(sample, (seed, first + n as u64), scratch, out);
            transformed.map_err(|misfit| NetError::at(self.dataset.place(index), misfit))?;
            *label = self.dataset.label(index) as f32;
            Ok(())
        });
        filled.find_map_first(Result::err).map_or(Ok(()), Err)
    }
}
