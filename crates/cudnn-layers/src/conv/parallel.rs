//! Several devices of one model that measure at the same time.

use super::geometry;
use planner::{Done, Measurement, Profiler, ProfilerError, Request, RequestError};
use std::sync::{Mutex, PoisonError};
use std::{ops::Range, sync::mpsc::channel, thread};

/// Opens a device, which takes a second, and gives what measures on it.
pub type OpenProfiler = Box<dyn FnMut() -> Result<Box<dyn Profiler + Send>, ProfilerError> + Send>;

/// Profilers of equal devices as one: whichever is free takes the requests about the next kernel.
pub struct ParallelProfiler {
    workers: Vec<ProfilerThread>,
}

/// A profiler, opened in the thread that works with it when there is work for it.
struct ProfilerThread {
    open: OpenProfiler,
    opened: Option<Box<dyn Profiler + Send>>,
}

impl ProfilerThread {
    fn profiler(&mut self) -> Result<&mut dyn Profiler, ProfilerError> {
        let opened = self.opened.take().map_or_else(&mut self.open, Ok)?;
        Ok(&mut **self.opened.insert(opened))
    }
}

impl ParallelProfiler {
    /// A profiler made of others, whose devices must be of one model: their measurements are not told apart.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(open: Vec<OpenProfiler>) -> Self {
        assert!(!open.is_empty(), "at least one device has to measure");
        Self { workers: open.into_iter().map(|open| ProfilerThread { open, opened: None }).collect() }
    }
}

impl Profiler for ParallelProfiler {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        self.workers[0].profiler()?.measure(request)
    }

    /// Lets the workers serve `requests`, kernel by kernel. The first error ends it.
    fn measure_each(&mut self, requests: &[Request], done: Done<'_>) -> Result<(), RequestError> {
        let pieces = Mutex::new(pieces(requests).into_iter());
        let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
        thread::scope(|scope| {
            let (results, received) = channel();
            for worker in &mut self.workers {
                let (results, next) = (results.clone(), &next);
                scope.spawn(move || {
                    while let Some(range) = next() {
                        let first = range.start;
                        let mut served = |index: usize, rows| -> Result<(), ProfilerError> {
                            // The receiver is gone after the first error.
                            let sent = results.send((first + index, Ok(rows)));
                            sent.map_err(|_| "measuring has ended".into())
                        };
                        let profiler = worker.profiler().map_err(|source| RequestError { index: 0, source });
                        let measured = profiler
                            .and_then(|profiler| profiler.measure_each(&requests[range], &mut served));
                        if let Err(RequestError { index, source }) = measured {
                            let _ = results.send((first + index, Err(source)));
                            return;
                        }
                    }
                });
            }
            drop(results);
            received.into_iter().try_for_each(|(index, served)| {
                served.and_then(|rows| done(index, rows)).map_err(|source| RequestError { index, source })
            })
        })
    }
}

/// The ranges of neighbours about one kernel, those with most work first: what comes last should be short, so that all
/// end at about the same time.
fn pieces(requests: &[Request]) -> Vec<Range<usize>> {
    let mut pieces: Vec<(f64, Range<usize>)> = Vec::new();
    let mut first = 0;
    for of_kernel in requests.chunk_by(|a, b| a.kernel == b.kernel) {
        let range = first..first + of_kernel.len();
        first = range.end;
        pieces.push((of_kernel.iter().map(work).sum(), range));
    }
    pieces.sort_by(|a, b| b.0.total_cmp(&a.0));
    pieces.into_iter().map(|(_, range)| range).collect()
}

/// About how much there is to do, in operations.
fn work(request: &Request) -> f64 {
    let geometry = geometry(&request.kernel.shape, request.micro_batch);
    let algorithms = request.algorithms.as_ref().map_or(1, Vec::len);
    geometry.validate().map_or(0.0, |geometry| geometry.flops() * algorithms as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conv::kernel_id;
    use planner::{ConvOp, KernelId};
    use std::collections::BTreeMap;
    use std::sync::{Arc, Barrier};
    use tensor::{ConvGeometry, Format};

    fn requests(kernels: usize, sizes: u32) -> Vec<Request> {
        let kernel = |k| kernel_id(ConvOp::Forward, &ConvGeometry::new([1, 3, 8, 8], k, [3, 3]), Format::F32);
        (1..=kernels).flat_map(|k| (1..=sizes).map(move |size| Request::all(kernel(k), size))).collect()
    }

    fn row(worker: usize, request: &Request) -> Measurement {
        Measurement {
            algorithm: "GEMM".into(),
            micro_batch: request.micro_batch,
            time_ms: worker as f64,
            shared_ms: 0.0,
            workspace: planner::Bytes(0),
            max_error: 0.0,
            deterministic: true,
        }
    }

    /// Measures its own number; waits for the others before its first piece is done.
    struct Numbered {
        number: usize,
        all_here: Option<Arc<Barrier>>,
        fails_at: Option<u32>,
    }

    impl Profiler for Numbered {
        fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
            if let Some(all_here) = self.all_here.take() {
                all_here.wait();
            }
            if self.fails_at == Some(request.micro_batch) {
                return Err("the device is lost".into());
            }
            Ok(vec![row(self.number, request)])
        }
    }

    fn workers(count: usize, together: bool, fails_at: Option<u32>) -> ParallelProfiler {
        let barrier = Arc::new(Barrier::new(count));
        let all_here = || together.then(|| barrier.clone());
        let worker = |number| -> OpenProfiler {
            let mut profiler = Some(Numbered { number, all_here: all_here(), fails_at });
            Box::new(move || Ok(Box::new(profiler.take().expect("opened once"))))
        };
        ParallelProfiler::new((0..count).map(worker).collect())
    }

    #[test]
    fn all_workers_take_part_each_request_is_served_once_and_a_kernel_stays_where_it_is() {
        let requests = requests(7, 3);
        let mut served: BTreeMap<usize, Vec<Measurement>> = BTreeMap::new();
        let mut done = |index: usize, rows: Vec<Measurement>| {
            assert!(served.insert(index, rows).is_none());
            Ok(())
        };
        // Nobody is ready before all three have begun.
        workers(3, true, None).measure_each(&requests, &mut done).unwrap();
        assert!(served.keys().copied().eq(0..requests.len()));
        let mut of_kernel: BTreeMap<KernelId, Vec<f64>> = BTreeMap::new();
        for (index, rows) in served {
            assert_eq!(rows[0].micro_batch, requests[index].micro_batch);
            of_kernel.entry(requests[index].kernel).or_default().push(rows[0].time_ms);
        }
        assert!(of_kernel.values().all(|workers| workers.iter().all(|worker| *worker == workers[0])));
        let mut used: Vec<f64> = of_kernel.into_values().map(|workers| workers[0]).collect();
        used.sort_by(f64::total_cmp);
        used.dedup();
        assert_eq!(used, [0.0, 1.0, 2.0]);
    }

    #[test]
    fn an_error_of_either_side_ends_it_and_names_the_request() {
        let requests = requests(4, 3);
        let error = workers(2, false, Some(2)).measure_each(&requests, &mut |_, _| Ok(())).unwrap_err();
        assert_eq!(
            (requests[error.index].micro_batch, error.to_string().as_str()),
            (2, "the device is lost")
        );
        let mut calls = 0;
        let mut refuse = |_, _| {
            calls += 1;
            Err("enough".into())
        };
        let error = workers(2, false, None).measure_each(&requests, &mut refuse).unwrap_err();
        assert_eq!((error.to_string().as_str(), calls), ("enough", 1));
    }

    #[test]
    fn a_device_is_opened_once_when_there_is_something_to_do() {
        let opened = Arc::new(Mutex::new(0));
        let count = opened.clone();
        let mut lazy = ParallelProfiler::new(vec![Box::new(move || {
            *count.lock().unwrap() += 1;
            Ok(Box::new(Numbered { number: 0, all_here: None, fails_at: None }))
        })]);
        assert_eq!(*opened.lock().unwrap(), 0);
        let requests = requests(1, 2);
        lazy.measure_each(&requests, &mut |_, _| Ok(())).unwrap();
        assert_eq!(lazy.measure(&requests[0]).unwrap().len(), 1);
        assert_eq!(*opened.lock().unwrap(), 1);
        let mut never = ParallelProfiler::new(vec![Box::new(|| Err("there is no such GPU".into()))]);
        assert_eq!(never.measure(&requests[0]).unwrap_err().to_string(), "there is no such GPU");
        let error = never.measure_each(&requests, &mut |_, _| Ok(())).unwrap_err();
        assert_eq!((error.index, error.to_string().as_str()), (0, "there is no such GPU"));
    }
}
