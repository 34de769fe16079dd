//! Measuring every algorithm of a kernel on this machine.

use super::cpu::{CpuAlgorithm, Operands, algorithms};
use super::cuda::CudaProfiler;
use super::run::{slices, workspace_bytes};
use super::{ConvOp, operand_lens};
use planner::{
    Bytes, ConvShape, Dtype, KernelId, Layout, Math, Measurement, Profiler, ProfilerError, Request,
};
use std::{
    fmt,
    time::{Duration, Instant},
};
use tensor::{Accumulate, Arena, ConvGeometry, Cpu, Device, MemoryError, Span, arena::ALIGNMENT};

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
}

impl CpuProfiler {
    /// A profiler for the threads of `cpu`.
    pub fn new(cpu: Cpu, options: ProfileOptions) -> Self {
        Self { cpu, options, bench: None }
    }
}

impl CpuProfiler {
    /// The algorithms that a request asks for, with the elements of their workspaces; smallest first: whatever comes later
    /// has to be faster to be of use.
    fn algorithms(
        &self,
        request: &Request,
    ) -> Result<Vec<(&'static dyn CpuAlgorithm, usize)>, ProfilerError> {
        let geometry = geometry(&request.kernel.shape, request.micro_batch).validate()?;
        let (op, threads) = (request.kernel.op, self.cpu.threads());
        let asked = algorithms().iter().filter(|algorithm| request.asks_for(algorithm.name()));
        let applying = asked
            .filter_map(|&algorithm| Some((algorithm, algorithm.workspace_len(op, &geometry, threads)?)));
        let mut candidates: Vec<_> =
            applying.filter(|&(_, len)| workspace_bytes(len) <= self.options.largest_workspace).collect();
        candidates.sort_by_key(|&(_, len)| len);
        Ok(candidates)
    }
}

impl Profiler for CpuProfiler {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let candidates = self.algorithms(request)?;
        let &Request { kernel, micro_batch, mini_batch, .. } = request;
        let (op, geometry) = (kernel.op, geometry(&kernel.shape, micro_batch.max(mini_batch)));
        let largest = candidates.last().map_or(0, |&(_, len)| len);
        let bench = self.bench.take().filter(|bench| bench.holds(op, &geometry));
        let bench = self.bench.insert(bench.map_or_else(|| Bench::new(op, geometry), Ok)?);
        bench.reserve(largest)?;
        let (cpu, options) = (&self.cpu, &self.options);
        let mut best = Duration::MAX;
        let mut measurements = Vec::with_capacity(candidates.len());
        for (algorithm, len) in candidates {
            let samples = micro_batch as usize;
            let time = cpu.run(|| time(options, || bench.call(cpu, algorithm, samples, len), best));
            best = best.min(time.call);
            let [time_ms, shared_ms] = [time.call, time.preparing].map(|time| time.as_secs_f64() * 1e3);
            measurements.push(Measurement {
                algorithm: algorithm.name().into(),
                micro_batch,
                time_ms,
                shared_ms,
                workspace: workspace_bytes(len),
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

/// Throw-away operands and workspace of one kernel.
struct Bench {
    op: ConvOp,
    /// With as many samples as there are operands for.
    geometry: ConvGeometry,
    operands: Arena,
    spans: [Span; 3],
    workspace: Arena,
    calls: usize,
}

impl Bench {
    fn new(op: ConvOp, geometry: ConvGeometry) -> Result<Self, MemoryError> {
        let mut end = 0;
        let spans = operand_lens(op, &geometry).map(|len| {
            let span = Span { offset: end, len };
            end += len.next_multiple_of(ALIGNMENT);
            span
        });
        let mut operands = Arena::new(end)?;
        // Values of training's size: zeros would be unrealistically cheap for some processors, denormals dear.
        for span in &spans[..2] {
            let values = operands.view_mut(*span).into_host();
            values
                .iter_mut()
                .enumerate()
                .for_each(|(i, value)| *value = ((i * 7919) % 1024) as f32 / 1024.0 - 0.5);
        }
        Ok(Self { op, geometry, operands, spans, workspace: Arena::new(0)?, calls: 0 })
    }

    fn holds(&self, op: ConvOp, geometry: &ConvGeometry) -> bool {
        self.op == op && self.geometry.with_batch(geometry.n) == *geometry && geometry.n <= self.geometry.n
    }

    /// Room for so many elements of workspace.
    fn reserve(&mut self, len: usize) -> Result<(), MemoryError> {
        if self.workspace.len() < len {
            // The old one first: there may not be room for both.
            self.workspace = Arena::new(0)?;
            self.workspace = Arena::new(len)?;
        }
        Ok(())
    }

    /// One call, on the next slice of so many samples that there is.
    fn call(
        &mut self,
        cpu: &Cpu,
        algorithm: &dyn CpuAlgorithm,
        samples: usize,
        workspace_len: usize,
    ) -> Timing {
        use tensor::{Access::*, Lease};
        let first = self.calls % (self.geometry.n / samples) * samples;
        self.calls += 1;
        let mut spans = self.spans;
        let ranges = slices(self.op, &self.geometry, &(first..first + samples));
        for (span, range) in spans.iter_mut().zip(ranges) {
            *span = Span { offset: span.offset + range.start, len: range.len() };
        }
        let adds_up = self.op == ConvOp::BackwardFilter && samples < self.geometry.n;
        let accumulate = if adds_up { Accumulate::Add } else { Accumulate::Replace };
        let [a, b, out] = spans;
        let leases = self.operands.lease(&[(a, Read), (b, Read), (out, Write)]);
        let leases = <[Lease<'_>; 3]>::try_from(leases.expect("spans side by side")).expect("three requests");
        let [Lease::Read(a), Lease::Read(b), Lease::Write(out)] = leases else {
            unreachable!("leases come in the order of the requests")
        };
        let operands = Operands { a: a.host(), b: b.host(), out: out.into_host() };
        let workspace = self.workspace.view_mut(Span { offset: 0, len: workspace_len }).into_host();
        let geometry = self.geometry.with_batch(samples);
        let shares = algorithm.prepared_len(self.op, &geometry) > 0;
        let start = Instant::now();
        algorithm.prepare(cpu, self.op, &geometry, operands.b, workspace);
        let preparing = if shares { start.elapsed() } else { Duration::ZERO };
        algorithm.run(cpu, self.op, &geometry, operands, accumulate, workspace);
        Timing { call: start.elapsed(), preparing }
    }
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bench({} of {:?})", self.op, self.geometry)
    }
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

/// What identifies the kernel of `op` on this geometry, whatever its mini-batch.
///
/// # Panics
/// If an extent exceeds 32 bits.
pub fn kernel_id(op: ConvOp, g: &ConvGeometry) -> KernelId {
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
    KernelId { op, shape, dtype: Dtype::F32, math: Math::Fp32, layout: Layout::Nchw }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_micro_batch_is_a_slice_of_the_mini_batchs_operands() {
        let options = ProfileOptions { repeats: 1, at_least: Duration::ZERO, largest_workspace: Bytes::MAX };
        let mut profiler = CpuProfiler::new(Cpu::new(1), options);
        let kernel = |k| kernel_id(ConvOp::BackwardFilter, &ConvGeometry::new([1, 2, 6, 6], k, [3, 3]));
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
