//! Mini-batches, one after another, with the next ones prepared while the net computes.

use super::batch::{BatchSource, LoaderOptions};
use super::prefetch::{Worker, decoders};
use super::{DataSummary, Dataset, NetError, Result, Transform};
use crate::spec::TransformParams;
use std::sync::Arc;
use tensor::{Device, ViewMut, geometry::elements};

/// An endless stream of mini-batches over a data set.
///
/// Its whole state is [`position`](Self::position): order, crops and mirrors are functions of (seed, position), so what
/// comes next depends neither on timing nor on the number of threads.
pub struct Loader {
    source: Arc<BatchSource>,
    device: Device,
    worker: Option<Worker>,
    /// Where the next mini-batch begins.
    position: u64,
}

impl Loader {
    /// Checks the options against the data set; mini-batches go into memory of `device`. Nothing is read or started.
    ///
    /// # Errors
    /// Those of [`Transform::new`], a mini-batch that is empty or more than any memory holds, a data set of more than
    /// 2^32 samples to be shuffled.
    pub fn new(
        dataset: Arc<dyn Dataset>,
        transform: &TransformParams,
        options: LoaderOptions,
        device: &Device,
    ) -> Result<Self> {
        let (samples, shape @ [c, h, w]) = (dataset.facts().len, dataset.facts().shape);
        let mini_batch = options.mini_batch;
        let refused = |reason| Err(NetError::Refused(reason));
        if mini_batch == 0 || samples == 0 || shape.contains(&0) {
            let samples = format!("{samples} samples of {c}x{h}x{w}");
            return refused(format!("no mini-batch of {mini_batch} can be made from {samples}"));
        }
        if options.shuffle && u32::try_from(samples).is_err() {
            return refused(format!("{samples} samples are too many to shuffle"));
        }
        let transform = Transform::new(transform, shape, options.phase)?;
        let [channels, height, width] = transform.out_shape();
        if elements(&[mini_batch, channels, height, width]).is_none() {
            let samples = format!("{mini_batch} samples of {channels}x{height}x{width}");
            return refused(format!("{samples} are more than any memory holds"));
        }
        let (order, abandoned) = Default::default();
        let source = Arc::new(BatchSource { dataset, transform, options, order, abandoned });
        Ok(Self { source, device: device.clone(), worker: None, position: 0 })
    }

    /// How mini-batches are put together.
    pub fn options(&self) -> &LoaderOptions {
        &self.source.options
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
        let (images, classes) = (set.facts().len, set.facts().classes);
        let in_order = !options.shuffle && images as u64 > options.stride();
        DataSummary {
            images,
            classes,
            class_names: set.class_names(),
            is_by_class: in_order && set.is_by_class(),
        }
    }

    /// Samples handed out since the start (all epochs together): with the seed, all that a resumed run has to know.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Continues at a position, as if that many samples had been handed out: at most 2^53, which no training reaches.
    pub fn set_position(&mut self, position: u64) {
        self.worker = None; // what it has prepared belongs elsewhere
        self.position = position.min(1 << 53);
    }

    /// Bytes of host memory: of data set, mini-batch prepared ahead, order of samples, and those read at a time.
    pub fn host_bytes(&self) -> u64 {
        let BatchSource { dataset, transform, options, .. } = &*self.source;
        let facts = dataset.facts();
        let shuffled = if options.shuffle { facts.len * size_of::<u32>() } else { 0 };
        let order = shuffled + options.mini_batch * size_of::<usize>();
        let sample = facts.shape.iter().map(|&extent| extent as u64).product::<u64>();
        let scratch = transform.scratch_bytes(facts.shape);
        let at_a_time = if facts.is_decoded { decoders(&self.device) as u64 } else { 1 };
        let reading = at_a_time * (sample + scratch + facts.reading_bytes);
        // On its way to a GPU, it goes through two buffers that take turns.
        facts.resident_bytes + self.ahead() + self.staged_bytes() + order as u64 + reading
    }

    /// Bytes of device memory of the mini-batch prepared ahead, beside the net's own.
    pub fn staged_bytes(&self) -> u64 {
        if matches!(self.device, Device::Cuda(_)) { self.ahead() } else { 0 }
    }

    /// Bytes of the mini-batch prepared ahead.
    fn ahead(&self) -> u64 {
        (self.source.len() * size_of::<f32>()) as u64
    }

    /// Writes the next mini-batch into memory of the loader's device: `data` in the order sample, channel, row, column,
    /// and `labels`, if they are wanted, as numbers, as Caffe keeps them. A GPU's copy is launched, not waited for.
    ///
    /// # Errors
    /// A sample cannot be read or does not fit; then the position stays where it was. Or a GPU is lost.
    ///
    /// # Panics
    /// If the lengths of `data` and `labels` are not those of a mini-batch.
    pub fn upload(&mut self, data: ViewMut<'_>, labels: Option<ViewMut<'_>>) -> Result<()> {
        let Self { source, device, worker, position } = self;
        let mini_batch = source.options.mini_batch;
        let lens = (data.len(), labels.as_ref().map_or(mini_batch, ViewMut::len));
        assert_eq!(lens, (source.data_len(), mini_batch), "lengths of the mini-batch's data and labels");
        let next = *position + source.options.stride();
        let mut ahead = worker.take().map_or_else(|| Worker::start(source, device, *position), Ok)?;
        ahead.take(data, labels, next)?;
        *worker = Some(ahead);
        *position = next;
        Ok(())
    }
}
