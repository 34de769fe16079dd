//! Mini-batches, one after another, with the next ones prepared while the net computes.

use std::sync::Arc;

use rayon::prelude::*;
use tensor::{Cpu, geometry::elements};

use super::order::Order;
use super::prefetch::Worker;
use super::{
    DataError, DataSummary, Dataset, Draw, Phase, Sample, Transform, TransformOptions, TransformScratch,
};

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
    /// Mini-batches prepared ahead by a background thread; 0 prepares each one when it is asked for. One is enough to
    /// overlap loading with computing, for the net takes a copy; more only even out files of very different sizes.
    pub prefetch: usize,
}

impl LoaderOptions {
    /// In the order of the data set, seed 0, one mini-batch ahead.
    pub fn new(mini_batch: usize, phase: Phase) -> Self {
        Self { mini_batch, phase, seed: 0, shuffle: false, prefetch: 1 }
    }
}

/// An endless stream of mini-batches over a data set.
///
/// Its whole state is [`position`](Self::position): order, crops and mirrors are functions of (seed, position), so what
/// comes next depends neither on timing nor on the number of threads.
pub struct Loader {
    source: Arc<BatchSource>,
    position: u64,
    prefetch: usize,
    worker: Option<Worker>,
    /// Used when nothing is prepared ahead.
    direct: Cursor,
}

impl Loader {
    /// Checks the options against the data set. Nothing is read yet, and no thread started.
    ///
    /// # Errors
    /// Those of [`Transform::new`], a mini-batch that is empty or more than any memory holds, a data set of more than 2^32
    /// samples to be shuffled.
    pub fn new(
        dataset: Arc<dyn Dataset>,
        transform: &TransformOptions,
        options: LoaderOptions,
    ) -> Result<Self, DataError> {
        if options.mini_batch == 0 || dataset.is_empty() {
            let samples = dataset.len();
            let reason =
                format!("no mini-batch of {} can be made from {samples} samples", options.mini_batch);
            return Err(DataError::Options(reason));
        }
        if options.shuffle && u32::try_from(dataset.len()).is_err() {
            return Err(DataError::Options(format!("{} samples are too many to shuffle", dataset.len())));
        }
        let transform = Transform::new(transform, dataset.shape(), options.phase)?;
        let [channels, height, width] = transform.out_shape();
        if elements(&[options.mini_batch, channels, height, width]).is_none() {
            return Err(DataError::Options(format!(
                "{} samples of {channels}x{height}x{width} are more than any memory holds",
                options.mini_batch
            )));
        }
        let source = Arc::new(BatchSource { dataset, transform, options });
        let direct = source.cursor(0);
        Ok(Self { source, position: 0, prefetch: options.prefetch, worker: None, direct })
    }

    /// Channels, height and width of a transformed image.
    pub fn out_shape(&self) -> [usize; 3] {
        self.source.transform.out_shape()
    }

    /// The data set.
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        &self.source.dataset
    }

    /// What mini-batches are made of.
    pub fn summary(&self) -> DataSummary {
        let (set, options) = (self.dataset(), self.source.options);
        let in_order = !options.shuffle && set.len() > options.mini_batch;
        DataSummary {
            images: set.len(),
            classes: set.classes(),
            class_names: set.class_names(),
            is_by_class: in_order && set.is_by_class(),
        }
    }

    /// Samples handed out since the start (all epochs together): with the seed, all that a resumed run has to know.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Continues at a position, as if that many samples had been handed out.
    pub fn set_position(&mut self, position: u64) {
        self.worker = None; // what it has prepared belongs elsewhere
        self.position = position;
    }

    /// Bytes of the mini-batches prepared ahead, of the order of samples, and of those samples that are read at a time,
    /// beside the data set's own.
    pub fn buffer_bytes(&self) -> u64 {
        let BatchSource { dataset, transform, options } = &*self.source;
        let shuffled = if options.shuffle { dataset.len() * size_of::<u32>() } else { 0 };
        let order = shuffled + options.mini_batch * size_of::<usize>();
        let floats = self.source.data_len() + options.mini_batch;
        let [sample, resized] = [dataset.shape(), transform.resized_shape().unwrap_or_default()]
            .map(|shape| shape.iter().map(|&extent| extent as u64).product::<u64>());
        let at_a_time = if dataset.is_decoded() { Cpu::available_threads() as u64 } else { 1 };
        (self.prefetch * floats * size_of::<f32>() + order) as u64
            + at_a_time * (sample + resized + dataset.reading_bytes())
    }

    /// Writes the next mini-batch: `data` in the order sample, channel, row, column, and `labels` as numbers, as Caffe
    /// keeps them.
    ///
    /// # Errors
    /// A sample cannot be read or does not fit; then the position stays where it was.
    ///
    /// # Panics
    /// If the lengths of `data` and `labels` are not those of a mini-batch.
    pub fn next_into(&mut self, data: &mut [f32], labels: &mut [f32]) -> Result<(), DataError> {
        assert_eq!(data.len(), self.source.data_len(), "length of the mini-batch's data");
        assert_eq!(labels.len(), self.source.options.mini_batch, "length of the mini-batch's labels");
        if self.prefetch == 0 {
            self.direct.position = self.position;
            self.source.fill(&mut self.direct, data, labels)?;
        } else {
            self.take_prepared(data, labels)?;
        }
        self.position += self.source.options.mini_batch as u64;
        Ok(())
    }

    fn take_prepared(&mut self, data: &mut [f32], labels: &mut [f32]) -> Result<(), DataError> {
        let worker = match self.worker.take() {
            Some(worker) => worker,
            None => Worker::start(&self.source, self.position, self.prefetch)?,
        };
        // A worker ends with the error it hands over: it is kept for the next mini-batch only after success.
        let worker = worker.take(data, labels)?;
        self.worker = Some(worker);
        Ok(())
    }
}

/// What mini-batches are made from; shared with the background thread.
pub(super) struct BatchSource {
    dataset: Arc<dyn Dataset>,
    transform: Transform,
    options: LoaderOptions,
}

/// A position, and the memory reused from one mini-batch to the next.
pub(super) struct Cursor {
    position: u64,
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
        let order = Order::new(self.dataset.len(), seed, shuffle);
        Cursor { position, order, indices: Vec::new(), scratch: Scratch::default() }
    }

    /// Whether filling a mini-batch is spread over threads.
    pub(super) fn is_parallel(&self) -> bool {
        self.dataset.is_decoded()
    }

    pub(super) fn mini_batch(&self) -> usize {
        self.options.mini_batch
    }

    pub(super) fn data_len(&self) -> usize {
        self.options.mini_batch * self.sample_len()
    }

    fn sample_len(&self) -> usize {
        self.transform.out_shape().iter().product()
    }

    /// Fills a mini-batch and moves the cursor behind it. Of several bad samples the first one is reported.
    pub(super) fn fill(
        &self,
        cursor: &mut Cursor,
        data: &mut [f32],
        labels: &mut [f32],
    ) -> Result<(), DataError> {
        let start = cursor.position;
        let end = start + labels.len() as u64;
        cursor.indices.clear();
        cursor.indices.extend((start..end).map(|position| cursor.order.index(position)));
        if self.is_parallel() {
            self.fill_parallel(start, &cursor.indices, data, labels)?;
        } else {
            self.fill_serial(start, &cursor.indices, data, labels, &mut cursor.scratch)?;
        }
        cursor.position = end;
        Ok(())
    }

    fn fill_serial(
        &self,
        start: u64,
        indices: &[usize],
        data: &mut [f32],
        labels: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<(), DataError> {
        let slots = data.chunks_exact_mut(self.sample_len()).zip(labels);
        for ((position, &index), (out, label)) in (start..).zip(indices).zip(slots) {
            self.fill_sample(position, index, scratch, out, label)?;
        }
        Ok(())
    }

    fn fill_parallel(
        &self,
        start: u64,
        indices: &[usize],
        data: &mut [f32],
        labels: &mut [f32],
    ) -> Result<(), DataError> {
        let slots = data.par_chunks_exact_mut(self.sample_len()).zip(labels);
        let error = slots
            .zip(indices)
            .enumerate()
            .map_init(Scratch::default, |scratch, (n, ((out, label), &index))| {
                self.fill_sample(start + n as u64, index, scratch, out, label).err()
            })
            .find_map_first(|error| error);
        error.map_or(Ok(()), Err)
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
        let draw = Draw { seed: self.options.seed, position };
        self.transform
            .apply(sample, draw, transform, out)
            .map_err(|misfit| DataError::Sample { place: self.dataset.place(index), misfit })?;
        *label = sample.label as f32;
        Ok(())
    }
}
