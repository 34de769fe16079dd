//! Mini-batches put together from samples, and the memory that this is done in.

use super::{DataError, Dataset, Phase, Sample, Transform, TransformScratch, order::Order};
use crate::group::Share;
use rayon::prelude::*;
use std::sync::Arc;
use tensor::{Device, Staged};

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
    /// Mini-batches prepared ahead by a background thread; 0 prepares each one when it is needed. One is enough to
    /// overlap loading with computing, for the net takes a copy; more only even out files of very different sizes.
    pub prefetch: usize,
    /// Of several ranks each reads its own mini-batch, the first that of the first samples.
    pub share: Share,
}

impl LoaderOptions {
    /// Samples that all ranks together consume at a time.
    pub(super) fn stride(&self) -> u64 {
        (self.mini_batch * self.share.ranks) as u64
    }
}

/// What mini-batches are made from; shared with the background thread.
pub(super) struct BatchSource {
    pub(super) dataset: Arc<dyn Dataset>,
    pub(super) transform: Transform,
    pub(super) options: LoaderOptions,
}

/// A position, that of rank 0, and the memory reused from one mini-batch to the next.
pub(super) struct Cursor {
    pub(super) position: u64,
    order: Order,
    indices: Vec<usize>,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    sample: Sample,
    transform: TransformScratch,
}

impl BatchSource {
    pub(super) fn cursor(&self, position: u64) -> Cursor {
        let LoaderOptions { seed, shuffle, .. } = self.options;
        let order = Order::new(self.dataset.facts().len, seed, shuffle);
        Cursor { position, order, indices: Vec::new(), scratch: Scratch::default() }
    }

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

    /// Memory of `device` for a mini-batch that is prepared while it computes.
    pub(super) fn room(&self, device: &Device) -> Result<Staged, DataError> {
        Ok(Staged::new(device, self.len() * size_of::<f32>())?)
    }

    /// As [`BatchSource::fill`], in such memory.
    pub(super) fn stage(&self, cursor: &mut Cursor, staged: &mut Staged) -> Result<(), DataError> {
        staged.fill(self.len(), |values| {
            let (data, labels) = values.split_at_mut(self.data_len());
            self.fill(cursor, data, labels)
        })
    }

    /// Fills a mini-batch and moves the cursor behind those of all ranks. The first of several bad samples is reported.
    pub(super) fn fill(
        &self,
        cursor: &mut Cursor,
        data: &mut [f32],
        labels: &mut [f32],
    ) -> Result<(), DataError> {
        let Cursor { position, order, indices, scratch } = cursor;
        let LoaderOptions { mini_batch, share, .. } = self.options;
        let first = *position + (share.rank * mini_batch) as u64;
        indices.clear();
        indices.extend((first..first + mini_batch as u64).map(|position| order.index(position)));
        let fill = |scratch: &mut Scratch, (n, ((out, label), &index)): (usize, Slot<'_>)| {
            self.fill_sample(first + n as u64, index, scratch, out, label).err()
        };
        let error = if self.dataset.facts().is_decoded {
            let slots = data.par_chunks_exact_mut(self.sample_len()).zip(labels).zip(&*indices);
            slots.enumerate().map_init(Scratch::default, fill).find_map_first(|error| error)
        } else {
            let mut slots = data.chunks_exact_mut(self.sample_len()).zip(labels).zip(&*indices).enumerate();
            slots.find_map(|slot| fill(scratch, slot))
        };
        error.map_or(Ok(()), Err)?;
        *position += self.options.stride();
        Ok(())
    }

    fn fill_sample(
        &self,
        position: u64,
        index: usize,
        scratch: &mut Scratch,
        out: &mut [f32],
        label: &mut f32,
    ) -> Result<(), DataError> {
        let Scratch { sample, transform } = scratch;
        self.dataset.read_into(index, sample)?;
        let transformed = self.transform.apply(sample, (self.options.seed, position), transform, out);
        transformed.map_err(|misfit| DataError::at(self.dataset.place(index), misfit))?;
        *label = sample.label as f32;
        Ok(())
    }
}

/// Where a sample and its label go, and its index.
type Slot<'a> = ((&'a mut [f32], &'a mut f32), &'a usize);
