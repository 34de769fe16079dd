//! A profiler at work on a table.

use crate::cost_table::CostTable;
use crate::error::ProfileError;
use crate::kernel::Kernel;
use crate::micro::{Algorithm, Measurement};
use crate::noise::join;
use crate::profiler::{Candidate, Profiler, ProfilerError, Request, RequestError};

/// How far profiling has come; given before each measurement and once at the end.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Measurements made.
    pub done: usize,
    /// Measurements to be made in all; under `adaptive` and `all` what is known of so far, until the end.
    pub total: usize,
    /// What is measured next: the first kernel of its kind and the micro-batch size. `None` at the end.
    pub next: Option<(&'a Kernel, u32)>,
}

/// What is to be measured of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'k> {
    pub(crate) kernel: &'k Kernel,
    pub(crate) request: Request,
}

impl<'k> Wanted<'k> {
    /// All algorithms.
    pub(crate) fn all(kernel: &'k Kernel, micro_batch: u32) -> Wanted<'k> {
        Wanted { kernel, request: Request::all(kernel.id, micro_batch) }
    }

    /// Some.
    pub(crate) fn some(
        kernel: &'k Kernel,
        micro_batch: u32,
        algorithms: impl IntoIterator<Item = Algorithm>,
    ) -> Wanted<'k> {
        let algorithms = Some(algorithms.into_iter().collect());
        Wanted { kernel, request: Request { kernel: kernel.id, micro_batch, algorithms } }
    }

    fn error(&self, source: ProfilerError) -> ProfileError {
        let Request { kernel: id, micro_batch, .. } = self.request;
        ProfileError { kernel: self.kernel.to_string(), id, micro_batch, source }
    }
}

/// The table, the profiler and the progress.
pub(crate) struct Measuring<'m> {
    table: &'m mut CostTable,
    profiler: &'m mut dyn Profiler,
    progress: &'m mut dyn FnMut(Progress<'_>),
    done: usize,
    total: usize,
}

impl<'m> Measuring<'m> {
    /// Nothing measured of `total`.
    pub(crate) fn new(
        table: &'m mut CostTable,
        profiler: &'m mut dyn Profiler,
        progress: &'m mut dyn FnMut(Progress<'_>),
        total: usize,
    ) -> Measuring<'m> {
        Measuring { table, profiler, progress, done: 0, total }
    }

    /// What was measured so far.
    pub(crate) fn table(&self) -> &CostTable {
        self.table
    }

    /// The table, for what needs no measurement.
    pub(crate) fn table_mut(&mut self) -> &mut CostTable {
        self.table
    }

    /// How many more were to be measured.
    pub(crate) fn left(&self) -> usize {
        self.total.saturating_sub(self.done)
    }

    /// Measures all of `wanted` and stores what comes out.
    pub(crate) fn measure(&mut self, wanted: &[Wanted<'_>]) -> Result<(), ProfileError> {
        self.ask(wanted, |table, request, rows| {
            let Request { kernel, micro_batch, algorithms } = request;
            match algorithms {
                None => table.insert(*kernel, *micro_batch, rows)?,
                Some(_) => table.insert_some(*kernel, *micro_batch, rows)?,
            }
            Ok(())
        })
    }

    /// Measures what was measured before, and keeps the shorter times. Returns by which part those of each request's
    /// fastest algorithm differ.
    pub(crate) fn repeat(&mut self, wanted: &[Wanted<'_>]) -> Result<Vec<f64>, ProfileError> {
        let mut differences = Vec::with_capacity(wanted.len());
        self.ask(wanted, |table, request, rows| {
            let Request { kernel, micro_batch, .. } = request;
            let before = table.measurements(kernel, *micro_batch).unwrap_or_default();
            let (joined, difference) = join(before, &rows);
            differences.push(difference);
            Ok(table.insert_some(*kernel, *micro_batch, joined)?)
        })?;
        Ok(differences)
    }

    fn ask(
        &mut self,
        wanted: &[Wanted<'_>],
        mut store: impl FnMut(&mut CostTable, &Request, Vec<Measurement>) -> Result<(), ProfilerError>,
    ) -> Result<(), ProfileError> {
        let Measuring { table, profiler, progress, done, total } = self;
        let mut next = wanted.iter();
        let mut tell = |done: usize| {
            if let Some(Wanted { kernel, request }) = next.next() {
                let next = Some((*kernel, request.micro_batch));
                progress(Progress { done, total: done.max(*total), next });
            }
        };
        tell(*done);
        let requests: Vec<Request> = wanted.iter().map(|wanted| wanted.request.clone()).collect();
        let served = profiler.measure_each(&requests, &mut |index, rows| {
            store(table, &requests[index], rows)?;
            *done += 1;
            tell(*done);
            Ok(())
        });
        served.map_err(|RequestError { index, source }| wanted[index].error(source))
    }

    /// What can run for each of `wanted`, if the profiler knows.
    pub(crate) fn candidates(
        &mut self,
        wanted: &[Wanted<'_>],
    ) -> Result<Option<Vec<Vec<Candidate>>>, ProfileError> {
        let requests: Vec<Request> = wanted.iter().map(|wanted| wanted.request.clone()).collect();
        let candidates = self.profiler.candidates(&requests);
        candidates.map_err(|RequestError { index, source }| wanted[index].error(source))
    }

    /// Says that so many more are to be measured.
    pub(crate) fn expect(&mut self, more: usize) {
        self.total += more;
    }

    /// Says that nothing more will be measured.
    pub(crate) fn finish(self) {
        (self.progress)(Progress { done: self.done, total: self.done, next: None });
    }
}
