//! The interface of what measures, and its requests.

use crate::model::{Algorithm, Kernel, KernelId, Measurement};
use std::error::Error;
use thiserror::Error;

/// What a profiler reports when it cannot measure.
pub type ProfilerError = Box<dyn Error + Send + Sync>;

/// Algorithms of one kernel on one number of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kernel.
    pub kernel: KernelId,
    /// Samples.
    pub micro_batch: u32,
    /// Samples of the mini-batch of which they will be a part. A call is to be timed on a slice of operands of that
    /// size, as it will run: it finds other caches and addresses there than on operands of its own.
    pub mini_batch: u32,
    /// These algorithms only; all if `None`.
    pub algorithms: Option<Vec<Algorithm>>,
}

impl Request {
    /// Every algorithm of `kernel` on `micro_batch` samples that are a mini-batch of their own.
    pub fn all(kernel: KernelId, micro_batch: u32) -> Self {
        Self { kernel, micro_batch, mini_batch: micro_batch, algorithms: None }
    }

    /// These algorithms, or all if `None`, of `kernel` on so many samples of its mini-batch.
    pub(crate) fn of(kernel: &Kernel, micro_batch: u32, algorithms: Option<Vec<Algorithm>>) -> Self {
        Self { kernel: kernel.id, micro_batch, mini_batch: kernel.mini_batch, algorithms }
    }

    /// Whether it is about this algorithm too.
    pub fn asks_for(&self, algorithm: &str) -> bool {
        self.algorithms.as_ref().is_none_or(|some| some.iter().any(|other| other.as_str() == algorithm))
    }
}

/// A request that could not be served.
#[derive(Debug, Error)]
#[error("{source}")]
pub struct RequestError {
    /// Which of the requests.
    pub index: usize,
    /// Why.
    pub source: ProfilerError,
}

/// Takes the measurements of the request with this index; its error ends the measuring.
pub type Done<'d> = &'d mut dyn FnMut(usize, Vec<Measurement>) -> Result<(), ProfilerError>;

/// Runs convolution kernels on a device and times them.
pub trait Profiler {
    /// Measures every algorithm of the request that can run; those that cannot are left out, and an empty list says
    /// that none can. Of a request for all, a profiler may also leave out what is far behind another algorithm that is
    /// as good in everything else. Workspaces are never limited here: a table serves every limit.
    ///
    /// # Errors
    /// When the device fails; profiling then stops.
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError>;

    /// Measures all of `requests`, in whatever order suits the profiler and as many at a time as it can, and hands each
    /// to `done` as it is ready. By default one after the other.
    ///
    /// # Errors
    /// As [`measure`](Profiler::measure), with the request that failed; or what `done` returns.
    fn measure_each(&mut self, requests: &[Request], done: Done<'_>) -> Result<(), RequestError> {
        for (index, request) in requests.iter().enumerate() {
            let served = self.measure(request).and_then(|rows| done(index, rows));
            served.map_err(|source| RequestError { index, source })?;
        }
        Ok(())
    }
}
