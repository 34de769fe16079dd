//! Measuring every algorithm of a kernel on this machine.

use super::ConvOp;
use super::bench::{Bench, reuse};
use super::cpu::{CpuAlgorithm, Operands, algorithms};
use super::cuda::CudaProfiler;
use planner::{
    Bytes, ConvShape, Dtype, KernelId, Layout, Math, Measurement, Profiler, ProfilerError, Request,
};
use std::time::{Duration, Instant};
use tensor::{Arena, ConvGeometry, Cpu, Device, Format, Span};

/// How long and how often a call is measured.
#[derive(Clone, Copy, Debug)]
pub struct ProfileOptions {
    /// Fewest timed calls after the warm-up on a CPU; a GPU, which nobody else interrupts, may do with one.
    pub repeats: usize,
    /// Timed calls go on until they have taken this long together, so that short ones are averaged over more.
    pub at_least: Duration,
    /// Algorithms that need more workspace than this are not tried: what no limit will ever admit need not be timed.
    pub largest_workspace: Bytes,
}

impl ProfileOptions {
    /// What gives times good enough for a plan on `device`, and no better ones.
    pub fn on(device: &Device) -> Self {
        let at_least = match device {
            Device::Cpu(_) => Duration::from_millis(2),
            Device::Cuda(_) => Duration::from_micros(100),
        };
        Self { repeats: 3, at_least, largest_workspace: Bytes(2 << 30) }
    }
}

/// What measures kernels on `device`.
pub fn profiler(device: &Device, options: ProfileOptions) -> Box<dyn Profiler + Send> {
    match device {
        Device::Cpu(cpu) => Box::new(CpuProfiler::new(cpu.clone(), options)),
        Device::Cuda(cuda) => Box::new(CudaProfiler::new(cuda, options)),
    }
}

/// Calls of this length are timed twice at most: what disturbs a measurement is short beside them.
const LONG: Duration = Duration::from_millis(25);

/// Most timed calls of one measurement, however short they are.
const MOST_REPEATS: usize = 25;

/// A call that takes this many times as long as one that needs no more workspace will not be chosen, whatever it shares
/// with others. The warm-up, which also pays for cold caches, must be further behind than the calls after it.
const HOPELESS_WARM_UP: f64 = 2.0;
const HOPELESS: f64 = 1.3;

/// Measures kernels on the CPU, on operands of its own that no one else sees.
///
/// Calls are timed as they will run: micro-batches are taken in turn from the slices of the mini-batch's operands, whenever
/// they are measured. They find the caches as parts of a mini-batch do, with other samples in them, and add up if they are
/// parts of a filter gradient. Each prepares the filter for itself; that part of its time is
/// what it would share with other micro-batches.
#[derive(Debug)]
pub struct CpuProfiler {
    cpu: Cpu,
    options: ProfileOptions,
    bench: Option<Bench>,
    workspace: Option<Arena>,
}

impl CpuProfiler {
    /// A profiler for the threads of `cpu`.
    pub fn new(cpu: Cpu, options: ProfileOptions) -> Self {
        Self { cpu, options, bench: None, workspace: None }
    }
}

impl CpuProfiler {
    /// The algorithms that a request asks for, with their workspaces; smallest first: whatever comes later has to be faster to
    /// be of use.
    fn algorithms(
        &self,
        request: &Request,
    ) -> Result<Vec<(&'static dyn CpuAlgorithm, Bytes)>, ProfilerError> {
        let geometry = geometry(&request.kernel.shape, request.micro_batch).validate()?;
        let (op, threads) = (request.kernel.op, self.cpu.threads());
        let asked = algorithms().iter().filter(|algorithm| request.asks_for(algorithm.name()));
        let applying =
            asked.filter_map(|&algorithm| Some((algorithm, algorithm.workspace(op, &geometry, threads)?)));
        let mut candidates: Vec<_> =
            applying.filter(|&(_, workspace)| workspace <= self.options.largest_workspace).collect();
        candidates.sort_by_key(|&(_, workspace)| workspace);
        Ok(candidates)
    }
}

impl Profiler for CpuProfiler {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let candidates = self.algorithms(request)?;
        let &Request { kernel, micro_batch, mini_batch, .. } = request;
        let (op, geometry) = (kernel.op, geometry(&kernel.shape, micro_batch.max(mini_batch)));
        let largest = candidates.last().map_or(Bytes(0), |&(_, workspace)| workspace);
        let bench = self.bench.take().filter(|bench| bench.holds(op, &geometry));
        // Values of training's size: zeros would be unrealistically cheap for some processors, denormals dear.
        let pattern: [f32; 1024] = std::array::from_fn(|i| ((i * 7919) % 1024) as f32 / 1024.0 - 0.5);
        let new = || Bench::new(op, geometry, &pattern, Arena::new);
        let bench = self.bench.insert(bench.map_or_else(new, Ok)?);
        let arena = reuse(self.workspace.take(), largest.0 as usize, Arena::new)?;
        let arena = self.workspace.insert(arena);
        let (cpu, options) = (&self.cpu, &self.options);
        let mut best = Duration::MAX;
        let mut measurements = Vec::with_capacity(candidates.len());
        for (algorithm, workspace) in candidates {
            let memory = Span::bytes(0, workspace.0 as usize).tagged(Format::F32);
            let memory = arena.view_mut(memory).into_host();
            let call = || call(cpu, algorithm, bench, micro_batch as usize, memory);
            let time = cpu.run(|| time(options, call, best));
            best = best.min(time.call);
            let [time_ms, shared_ms] = [time.call, time.preparing].map(|time| time.as_secs_f64() * 1e3);
            measurements.push(Measurement {
                algorithm: algorithm.name().into(),
                micro_batch,
                time_ms,
                shared_ms,
                workspace,
                max_error: algorithm.max_error(),
                deterministic: true,
            });
        }
        Ok(measurements)
    }
}

/// How long one call took, and the beginning of it: preparing the filter, which further micro-batches of a kernel find done.
///
/// They save a little more than that, for preparing drives other things out of the caches. But the difference between long
/// calls with and without it is lost in noise, and what seems to be saved counts once for every micro-batch: too much of
/// it makes plans slow, too little only misses a chance.
#[derive(Clone, Copy, Debug)]
struct Timing {
    call: Duration,
    preparing: Duration,
}

impl Timing {
    /// Whether further micro-batches take more than `limit` times as long as `best`.
    fn is_hopeless(&self, limit: f64, best: Duration) -> bool {
        (self.call - self.preparing).as_secs_f64() > limit * best.as_secs_f64()
    }
}

/// The median times of a call, after a warm-up; those of a single one if it is hopelessly above `best`.
fn time(options: &ProfileOptions, mut call: impl FnMut() -> Timing, best: Duration) -> Timing {
    let warm_up = call();
    if warm_up.is_hopeless(HOPELESS_WARM_UP, best) {
        return warm_up;
    }
    let first = call();
    if first.is_hopeless(HOPELESS, best) {
        return first;
    }
    let repeats = if first.call < LONG { options.repeats } else { options.repeats.min(2) };
    let mut times = Vec::with_capacity(MOST_REPEATS);
    times.push(first);
    let mut total = first.call;
    while times.len() < repeats || (total < options.at_least && times.len() < MOST_REPEATS) {
        times.push(call());
        total += times[times.len() - 1].call;
    }
    // No preparing takes longer than its call, so neither does their median.
    Timing { call: median(&times, |time| time.call), preparing: median(&times, |time| time.preparing) }
}

fn median(times: &[Timing], of: impl Fn(&Timing) -> Duration) -> Duration {
    let mut sorted: Vec<Duration> = times.iter().map(of).collect();
    sorted.sort_unstable();
    sorted[(sorted.len() - 1) / 2]
}

/// One call, on the next slice of so many samples that there is.
fn call(
    cpu: &Cpu,
    algorithm: &dyn CpuAlgorithm,
    bench: &mut Bench,
    samples: usize,
    workspace: &mut [f32],
) -> Timing {
    let (op, geometry) = (bench.op, bench.geometry.with_batch(samples));
    let ([a, b], out, accumulate) = bench.next(samples);
    let operands = Operands { a: a.host(), b: b.host(), out: out.into_host() };
    let shares = algorithm.prepared_len(op, &geometry) > 0;
    let start = Instant::now();
    algorithm.prepare(cpu, op, &geometry, operands.b, workspace);
    let preparing = if shares { start.elapsed() } else { Duration::ZERO };
    algorithm.run(cpu, op, &geometry, operands, accumulate, workspace);
    Timing { call: start.elapsed(), preparing }
}

/// The convolution of `micro_batch` samples that a planner's shape describes.
pub fn geometry(shape: &ConvShape, micro_batch: u32) -> ConvGeometry {
    let extent = |value: u32| value as usize;
    ConvGeometry {
        n: extent(micro_batch),
        c: extent(shape.c),
        h: extent(shape.h),
        w: extent(shape.w),
        k: extent(shape.k),
        r: extent(shape.r),
        s: extent(shape.s),
        pad: shape.pad.map(extent),
        stride: shape.stride.map(extent),
        dilation: shape.dilation.map(extent),
        groups: extent(shape.groups),
    }
}

/// What identifies the kernel of `op` on this geometry, with operands of this format, whatever its mini-batch.
///
/// # Panics
/// If an extent exceeds 32 bits, or the operands are bytes.
pub fn kernel_id(op: ConvOp, g: &ConvGeometry, format: Format) -> KernelId {
    let extent = |value: usize| u32::try_from(value).expect("extents of images and filters fit in 32 bits");
    let shape = ConvShape {
        c: extent(g.c),
        h: extent(g.h),
        w: extent(g.w),
        k: extent(g.k),
        r: extent(g.r),
        s: extent(g.s),
        pad: g.pad.map(extent),
        stride: g.stride.map(extent),
        dilation: g.dilation.map(extent),
        groups: extent(g.groups),
    };
    let dtype = match format.dtype {
        tensor::ElementType::F32 => Dtype::F32,
        tensor::ElementType::U8 => panic!("no convolution computes with bytes"),
    };
    let layout = match format.layout {
        tensor::AxisOrder::Nchw => Layout::Nchw,
    };
    KernelId { op, shape, dtype, math: Math::Fp32, layout }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_micro_batch_is_a_slice_of_the_mini_batchs_operands() {
        let options = ProfileOptions { repeats: 1, at_least: Duration::ZERO, largest_workspace: Bytes::MAX };
        let mut profiler = CpuProfiler::new(Cpu::new(1), options);
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
