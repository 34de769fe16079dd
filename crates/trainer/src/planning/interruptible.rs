//! Measuring that can be stopped.

use crate::stop::Stop;
use planner::{Done, Measurement, Profiler, ProfilerError, Request, RequestError};

/// A profiler that stops after the measurement during which `stop` is requested; the measurements so far are kept.
pub(super) struct Interruptible<'p> {
    pub(super) profiler: &'p mut dyn Profiler,
    pub(super) stop: &'p Stop,
}

impl Profiler for Interruptible<'_> {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        self.profiler.measure(request)
    }

    fn measure_each(&mut self, requests: &[Request], done: Done<'_>) -> Result<(), RequestError> {
        let stop = self.stop;
        self.profiler.measure_each(requests, &mut |index, rows| {
            done(index, rows)?;
            if stop.is_requested() { Err("stopped".into()) } else { Ok(()) }
        })
    }
}
