//! A profiler at work on a table.

use super::profiler::{Profiler, ProfilerError, Request, RequestError};
use crate::model::{Kernel, Measurement};
use crate::table::CostTable;
use thiserror::Error;

/// How far profiling has come; given before each measurement.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Measurements made.
    pub done: usize,
    /// Measurements to be made in all; under `adaptive` the most that may be.
    pub total: usize,
    /// What is measured next: the first kernel of its kind and the micro-batch size.
    pub next: (&'a Kernel, u32),
}

/// What is to be measured of a kernel.
pub(crate) type Wanted<'k> = (&'k Kernel, Request);

/// The table, the profiler and the progress.
pub(crate) struct Measuring<'m> {
    pub(super) table: &'m mut CostTable,
    pub(super) profiler: &'m mut dyn Profiler,
    pub(super) progress: &'m mut dyn FnMut(Progress<'_>),
    /// Measurements made, and those to be made in all.
    pub(super) done: usize,
    pub(super) total: usize,
}

impl Measuring<'_> {
    /// How many more were to be measured.
    pub(crate) fn left(&self) -> usize {
        self.total.saturating_sub(self.done)
    }

    /// Measures all algorithms of these kernels and sizes, and stores what comes out.
    pub(crate) fn measure(&mut self, wanted: &[(&Kernel, u32)]) -> Result<(), ProfileError> {
        let request = |&(kernel, micro_batch)| (kernel, Request::of(kernel, micro_batch, None));
        let wanted: Vec<Wanted<'_>> = wanted.iter().map(request).collect();
        self.ask(&wanted, |table, request, rows| {
            Ok(table.insert(request.kernel, request.micro_batch, rows)?)
        })
    }

    /// Measures what is `wanted`; `store` takes over what comes out of each request.
    pub(crate) fn ask(
        &mut self,
        wanted: &[Wanted<'_>],
        mut store: impl FnMut(&mut CostTable, &Request, Vec<Measurement>) -> Result<(), ProfilerError>,
    ) -> Result<(), ProfileError> {
        let Measuring { table, profiler, progress, done, total } = self;
        let mut next = wanted.iter();
        let mut tell = |done: usize| {
            if let Some((kernel, request)) = next.next() {
                progress(Progress { done, total: done.max(*total), next: (*kernel, request.micro_batch) });
            }
        };
        tell(*done);
        let requests: Vec<Request> = wanted.iter().map(|(_, request)| request.clone()).collect();
        let served = profiler.measure_each(&requests, &mut |index, rows| {
            store(table, &requests[index], rows)?;
            *done += 1;
            tell(*done);
            Ok(())
        });
        served.map_err(|RequestError { index, source }| {
            let (kernel, Request { micro_batch, .. }) = &wanted[index];
            let at = format!("{kernel} ({}) at micro-batch {micro_batch}", kernel.id.shape);
            ProfileError { at, source }
        })
    }
}

/// Profiling stopped at one kernel.
#[derive(Debug, Error)]
#[error("cannot profile {at}: {source}")]
pub struct ProfileError {
    at: String,
    /// What the profiler said, or what is impossible about a measurement that it returned.
    pub source: ProfilerError,
}
