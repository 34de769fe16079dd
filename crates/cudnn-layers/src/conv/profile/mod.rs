//! Measuring every algorithm of a kernel on this machine.

mod bench;
mod cpu;
mod cuda;

use super::{ConvError, Convolver, Result, candidates, error::is_unsupported, format, geometry};
use bench::Bench;
use planner::{Bytes, Done, KernelId, Measurement, Profiler, ProfilerError, Request, RequestError};
use std::{collections::HashSet, sync::Arc, time::Duration};
use tensor::Device;

/// How long and how often a call is measured.
#[derive(Clone, Copy, Debug)]
pub struct ProfileOptions {
    /// Fewest timed calls after the warm-up on a CPU; a GPU, which nothing interrupts, may do with one.
    pub repeats: usize,
    /// Calls are timed until they have taken this long together, so that short ones are averaged over more.
    pub at_least: Duration,
    /// Algorithms that need more workspace than this are not tried: what no limit will ever admit need not be timed.
    pub largest_workspace: Bytes,
    /// Whether algorithms are timed at large sizes, too, that at small ones were no match for another: no plan needs
    /// them, but a picture of all algorithms does.
    pub every_algorithm: bool,
}

impl ProfileOptions {
    /// What gives times good enough for a plan on `device`, and no better ones.
    pub fn on(device: &Device) -> Self {
        let at_least = match device {
            Device::Cpu(_) => Duration::from_millis(2),
            Device::Cuda(_) => Duration::from_micros(100),
        };
        Self { repeats: 3, at_least, largest_workspace: Bytes(2 << 30), every_algorithm: false }
    }
}

/// What measures kernels on `device`.
pub fn profiler(device: &Device, options: ProfileOptions) -> Box<dyn Profiler + Send> {
    Box::new(ConvProfiler::new(device, options))
}

/// One algorithm at one size, and what was found out about it.
struct Trial {
    /// Which request it is part of.
    request: usize,
    convolver: Arc<dyn Convolver>,
    /// Milliseconds of a call; `None` if it is not timed yet, or if cuDNN names a workspace but refuses to run.
    time_ms: Option<f64>,
    /// Milliseconds of it that micro-batches share.
    shared_ms: f64,
    /// Milliseconds that the host takes to launch a call on a GPU.
    launch_ms: f64,
}

impl Trial {
    fn samples(&self) -> usize {
        self.convolver.facts().geometry.n
    }
}

/// Measures kernels on operands of its own that no one else sees. Calls are timed as they will run.
struct ConvProfiler {
    device: Device,
    options: ProfileOptions,
    /// Values of training's size: zeros would be unrealistically cheap for some devices, denormals dear.
    pattern: Vec<f32>,
    bench: Option<Bench>,
    clock: Option<cuda::GpuClock>,
    /// Algorithms that need not be measured any more, unless they are requested by name.
    lost: HashSet<(KernelId, String)>,
}

impl ConvProfiler {
    fn new(device: &Device, options: ProfileOptions) -> Self {
        let pattern = tensor::rng::random(1 << 20, 1);
        Self { device: device.clone(), options, pattern, bench: None, clock: None, lost: HashSet::new() }
    }

    /// The measurements of each of `requests`, which are about one kernel.
    fn rows(&mut self, requests: &[Request]) -> Result<Vec<Vec<Measurement>>> {
        let kernel = requests[0].kernel;
        let mut trials = self.trials(requests)?;
        let samples = requests.iter().map(|request| request.micro_batch.max(request.mini_batch)).max();
        let geometry = geometry(&kernel.shape, samples.unwrap_or_default());
        let workspace = trials.iter().flatten().map(|trial| trial.convolver.facts().workspace).max();
        let workspace = workspace.unwrap_or_default().0 as usize;
        let subject = (kernel.op, geometry, format(&kernel));
        let bench = Bench::new(self.bench.take(), &self.device, subject, workspace, &self.pattern)?;
        let (bench, options) = (self.bench.insert(bench), &self.options);
        match &self.device {
            Device::Cpu(cpu) => {
                cpu.run(|| cpu::time(trials.iter_mut().flatten().collect(), bench, options))?
            }
            Device::Cuda(cuda) => {
                let clock = match &mut self.clock {
                    Some(clock) => clock,
                    none => none.insert(cuda::GpuClock::new(cuda)?),
                };
                let lost = clock.time(&mut trials, requests, bench, options)?;
                self.lost.extend(lost.into_iter().map(|name| (kernel, name)));
            }
        }
        let mut rows = vec![Vec::new(); requests.len()];
        for Trial { request, convolver, time_ms, shared_ms, .. } in trials.iter().flatten() {
            rows[*request].extend(time_ms.map(|time_ms| convolver.measurement(time_ms, *shared_ms)));
        }
        Ok(rows)
    }

    /// For each algorithm that is requested, the requests that it applies to, by rising size.
    fn trials(&self, requests: &[Request]) -> Result<Vec<Vec<Trial>>> {
        let mut trials: Vec<Vec<Trial>> = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            for convolver in candidates(&self.device, &request.kernel, request.micro_batch)? {
                let name = &convolver.facts().name;
                let has_lost = || self.lost.contains(&(request.kernel, name.to_owned()));
                let is_asked_for = request.asks_for(name) && (request.algorithms.is_some() || !has_lost());
                if !is_asked_for || convolver.facts().workspace > self.options.largest_workspace {
                    continue;
                }
                match convolver.load() {
                    Err(ConvError::Algorithm { source, .. }) if is_unsupported(&source) => continue,
                    loaded => loaded?,
                }
                let of_name = trials.iter().position(|series| series[0].convolver.facts().name == *name);
                let trial =
                    Trial { request: index, convolver, time_ms: None, shared_ms: 0.0, launch_ms: 0.0 };
                match of_name {
                    Some(place) => trials[place].push(trial),
                    None => trials.push(vec![trial]),
                }
            }
        }
        trials.iter_mut().for_each(|series| series.sort_by_key(Trial::samples));
        Ok(trials)
    }
}

impl Profiler for ConvProfiler {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let mut rows = self.rows(std::slice::from_ref(request))?;
        Ok(rows.swap_remove(0))
    }

    /// On a GPU neighbours about one kernel are measured together.
    fn measure_each(&mut self, requests: &[Request], done: Done<'_>) -> Result<(), RequestError> {
        let mut first = 0;
        let together = matches!(self.device, Device::Cuda(_));
        for of_kernel in requests.chunk_by(|a, b| together && a.kernel == b.kernel) {
            let rows = self.rows(of_kernel);
            let rows = rows.map_err(|error| RequestError { index: first, source: error.into() })?;
            for (index, rows) in (first..).zip(rows) {
                done(index, rows).map_err(|source| RequestError { index, source })?;
            }
            first += of_kernel.len();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::kernel_id, *};
    use planner::ConvOp;
    use tensor::{ConvGeometry, Cpu, Format};

    #[test]
    fn a_repeated_micro_batch_is_a_slice_of_the_mini_batchs_operands() {
        let options = ProfileOptions {
            repeats: 1,
            at_least: Duration::ZERO,
            largest_workspace: Bytes::MAX,
            every_algorithm: false,
        };
        let mut profiler = ConvProfiler::new(&Device::Cpu(Cpu::new(1)), options);
        let kernel =
            |k| kernel_id(ConvOp::BackwardFilter, &ConvGeometry::new([1, 2, 6, 6], k, [3, 3]), Format::F32);
        let part = |k, micro_batch| Request {
            mini_batch: 8,
            algorithms: Some(vec!["IMPLICIT_GEMM".into()]),
            ..Request::all(kernel(k), micro_batch)
        };
        // Another kernel was measured in between, and the largest size is not among what is repeated.
        for (k, micro_batch) in [(4, 8), (5, 8), (4, 2), (4, 3)] {
            let rows = profiler.measure(&part(k, micro_batch)).unwrap();
            assert_eq!((rows.len(), rows[0].micro_batch), (1, micro_batch));
            let bench = profiler.bench.as_ref().unwrap();
            assert_eq!((bench.geometry.n, bench.geometry.k), (8, k));
        }
    }
}
