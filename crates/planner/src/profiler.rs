//! Who measures, and what it is asked for.

use std::error::Error;

use thiserror::Error;

use crate::cost_table::CostTable;
use crate::kernel::KernelId;
use crate::micro::{Algorithm, Measurement};
use crate::units::Bytes;

/// What a profiler reports when it cannot measure.
pub type ProfilerError = Box<dyn Error + Send + Sync>;

/// Algorithms of one kernel on one number of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kernel.
    pub kernel: KernelId,
    /// Samples.
    pub micro_batch: u32,
    /// These algorithms only; all if `None`.
    pub algorithms: Option<Vec<Algorithm>>,
}

impl Request {
    /// Every algorithm of `kernel` on `micro_batch` samples.
    pub fn all(kernel: KernelId, micro_batch: u32) -> Request {
        Request { kernel, micro_batch, algorithms: None }
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

/// An algorithm that runs on some number of samples, before anybody has measured how fast.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Scratch memory that a call needs.
    pub workspace: Bytes,
    /// Accuracy class, as in [`Measurement::max_error`].
    pub max_error: f32,
    /// Whether equal operands always give bit-equal results.
    pub deterministic: bool,
}

impl Candidate {
    /// Whether it needs no more workspace than `other`, errs no more and is as deterministic.
    pub fn is_as_good_as(&self, other: &Candidate) -> bool {
        self.workspace <= other.workspace
            && self.max_error <= other.max_error
            && self.deterministic >= other.deterministic
    }

    /// The measurement that this would be if it took so long.
    pub fn taking(&self, micro_batch: u32, time_ms: f64) -> Measurement {
        let Candidate { algorithm, workspace, max_error, deterministic } = self.clone();
        Measurement { algorithm, micro_batch, time_ms, shared_ms: 0.0, workspace, max_error, deterministic }
    }
}

impl From<&Measurement> for Candidate {
    fn from(row: &Measurement) -> Candidate {
        let Measurement { algorithm, workspace, max_error, deterministic, .. } = row.clone();
        Candidate { algorithm, workspace, max_error, deterministic }
    }
}

/// Takes the measurements of the request with this index; its error ends the measuring.
pub type Done<'d> = &'d mut dyn FnMut(usize, Vec<Measurement>) -> Result<(), ProfilerError>;

/// Whoever can run convolution kernels on a device and time them.
pub trait Profiler {
    /// Measures every algorithm of the request that can run; those that cannot are left out, and an empty list
    /// says that none can. Of a request for all, a profiler may also leave out what is far behind another algorithm
    /// that is as good in everything else. Workspaces are never limited here: the limit is the plan's affair, and a table
    /// serves every limit.
    ///
    /// # Errors
    /// When the device fails; profiling then stops.
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError>;

    /// Measures all of `requests`, in whatever order suits the profiler and as many at a time as it can, and hands
    /// each to `done` as it is ready. By default one after the other.
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

    /// What can run for each of `requests`, without running it. A profiler that does not know without trying
    /// returns `None`, as it does by default, and is asked for everything.
    ///
    /// # Errors
    /// As [`measure_each`](Profiler::measure_each).
    fn candidates(&mut self, requests: &[Request]) -> Result<Option<Vec<Vec<Candidate>>>, RequestError> {
        let _ = requests;
        Ok(None)
    }
}

/// A recorded table stands in for the device it was measured on.
impl Profiler for CostTable {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let found = self.measurements(&request.kernel, request.micro_batch);
        let rows = found.ok_or_else(|| format!("the table of {} does not have it", self.device.name))?;
        Ok(rows.iter().filter(|row| request.asks_for(row.algorithm.as_str())).cloned().collect())
    }

    fn candidates(&mut self, requests: &[Request]) -> Result<Option<Vec<Vec<Candidate>>>, RequestError> {
        let mut of = |(index, request): (usize, &Request)| {
            let rows = self.measure(request).map_err(|source| RequestError { index, source })?;
            Ok(rows.iter().map(Candidate::from).collect())
        };
        requests.iter().enumerate().map(&mut of).collect::<Result<_, _>>().map(Some)
    }
}
