//! Measuring every algorithm of a kernel on the GPU.

use super::{Convolution, algorithms};
use crate::conv::profile::{ProfileOptions, geometry};
use crate::conv::{ConvError, ConvOp, operand_lens, run::slices};
use crate::raw::Cudnn;
use planner::{KernelId, Math, Measurement, Profiler, ProfilerError};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tensor::{
    Access, Accumulate, ConvGeometry, Lease, Span,
    arena::ALIGNMENT,
    cuda::{Cuda, CudaError, DeviceArena, Event},
};

/// Most calls between two events, however short they are.
const MOST_CALLS: usize = 50;

/// A call that takes this many times as long as one that needs no more workspace will not be chosen; a single timed call
/// is measurement enough. The constant allows for the start of that call, which the others hide behind each other.
const HOPELESS: f64 = 2.0;
const LAUNCH_MS: f64 = 0.05;

/// How long the GPU works before the first measurement, for it is slow to leave its idle clocks.
const SPIN_UP: Duration = Duration::from_millis(300);

/// Measures kernels on a GPU, on operands of its own that no one else sees.
///
/// Calls are timed as they will run: many in a row without waiting, between events, so that starting a call costs what it
/// costs there (nothing while the GPU is busy with the call before, all of it if calls are short). Micro-batches smaller
/// than the largest one measured so far of a kernel are taken in turn from the slices of that one's operands: at the
/// addresses, with the alignment and with the caches that they will have as parts of a mini-batch, adding up if they are
/// parts of a filter gradient.
#[derive(Debug)]
pub struct CudaProfiler {
    cuda: Cuda,
    options: ProfileOptions,
    events: Vec<Event>,
    pattern: Vec<f32>,
    bench: Option<Bench>,
    workspace: Option<DeviceArena>,
    spun_up: bool,
    /// What single-precision algorithms cost, for the same kernel where TF32 is allowed asks for them again.
    fp32: HashMap<(KernelId, u32), Vec<Measurement>>,
}

impl CudaProfiler {
    /// A profiler on `cuda`. Timed calls are divided among `options.repeats` intervals, of which the median
    /// counts, and take `options.at_least` together.
    ///
    /// # Errors
    /// The device is lost.
    pub fn new(cuda: &Cuda, options: ProfileOptions) -> Result<Self, CudaError> {
        let events = (0..=options.repeats.max(1)).map(|_| cuda.event()).collect::<Result<_, _>>()?;
        // Values of training's size: zeros would make a GPU faster than it is.
        let pattern = tensor::testing::random(1 << 20, 1);
        Ok(Self {
            cuda: cuda.clone(),
            options,
            events,
            pattern,
            bench: None,
            workspace: None,
            spun_up: false,
            fp32: HashMap::new(),
        })
    }

    fn rows(
        &mut self,
        cudnn: &Cudnn,
        kernel: &KernelId,
        math: Math,
        micro_batch: u32,
    ) -> Result<Vec<Measurement>, ConvError> {
        let convolutions = self.candidates(cudnn, kernel, math, micro_batch)?;
        let Some(largest) = convolutions.iter().map(Convolution::workspace_len).max() else {
            return Ok(Vec::new());
        };
        let geometry = *convolutions[0].geometry();
        let mut bench = self.bench(cudnn, kernel.op, geometry)?;
        let mut workspace = self.workspace(cudnn, largest)?;
        let mut best = f64::INFINITY;
        let mut rows = Vec::with_capacity(convolutions.len());
        for convolution in convolutions {
            let timed = self.time(cudnn, &mut bench, &convolution, &mut workspace, best);
            let time_ms = match timed {
                Ok(time_ms) => time_ms,
                // It gave a workspace size and refuses to run all the same: then it does not apply.
                Err(ConvError::Algorithm { source, .. }) if source.is_unsupported() => continue,
                Err(error) => return Err(error),
            };
            best = best.min(time_ms);
            let algorithm = convolution.algorithm();
            rows.push(Measurement {
                algorithm: algorithm.name().into(),
                micro_batch,
                time_ms,
                shared_ms: 0.0,
                workspace: convolution.workspace(),
                max_error: algorithm.max_error(&geometry),
                deterministic: algorithm.deterministic(),
            });
        }
        (self.bench, self.workspace) = (Some(bench), Some(workspace));
        Ok(rows)
    }

    /// The algorithms in `math` that apply and are worth a measurement, smallest workspace first: whatever comes later has
    /// to be faster to be of use.
    fn candidates(
        &self,
        cudnn: &Cudnn,
        kernel: &KernelId,
        math: Math,
        micro_batch: u32,
    ) -> Result<Vec<Convolution>, ConvError> {
        let geometry = geometry(&kernel.shape, micro_batch);
        let mut candidates = Vec::new();
        for algorithm in algorithms(kernel.op, math).filter(|algorithm| algorithm.math() == math) {
            candidates.extend(Convolution::new(cudnn, algorithm, geometry)?);
        }
        candidates.retain(|convolution| convolution.workspace() <= self.options.largest_workspace);
        candidates.sort_by_key(Convolution::workspace);
        Ok(candidates)
    }

    /// Operands that hold `geometry`: those that are there if they belong to the same kernel and are large enough.
    fn bench(&mut self, cudnn: &Cudnn, op: ConvOp, geometry: ConvGeometry) -> Result<Bench, ConvError> {
        let old = self.bench.take();
        if let Some(bench) = old {
            if bench.holds(op, &geometry) {
                return Ok(bench);
            }
            return Ok(Bench::new(cudnn, op, geometry, &self.pattern, Some(bench.arena))?);
        }
        Ok(Bench::new(cudnn, op, geometry, &self.pattern, None)?)
    }

    fn workspace(&mut self, cudnn: &Cudnn, len: usize) -> Result<DeviceArena, CudaError> {
        reuse(cudnn, self.workspace.take(), len)
    }

    /// Milliseconds of one call; of a single one if `best` shows that it does not matter.
    fn time(
        &mut self,
        cudnn: &Cudnn,
        bench: &mut Bench,
        convolution: &Convolution,
        workspace: &mut DeviceArena,
        best: f64,
    ) -> Result<f64, ConvError> {
        let start = Instant::now();
        loop {
            // The first call loads the algorithm's code; none of these counts.
            bench.call(cudnn, convolution, workspace)?;
            if self.spun_up {
                break;
            }
            cudnn.stream().synchronize()?;
            self.spun_up = start.elapsed() >= SPIN_UP;
        }
        let intervals = self.events.len() - 1;
        let once = intervals_ms(&self.events[..2], || bench.call(cudnn, convolution, workspace))?[0];
        if once > HOPELESS * best + LAUNCH_MS {
            return Ok(once);
        }
        let interval_ms = self.options.at_least.as_secs_f64() * 1e3 / intervals as f64;
        let calls = ((interval_ms / once.max(1e-4)).ceil() as usize).clamp(1, MOST_CALLS);
        let mut times = intervals_ms(&self.events, || {
            (0..calls).try_for_each(|_| bench.call(cudnn, convolution, workspace))
        })?;
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2] / calls as f64)
    }
}

impl Profiler for CudaProfiler {
    fn measure(&mut self, kernel: &KernelId, micro_batch: u32) -> Result<Vec<Measurement>, ProfilerError> {
        geometry(&kernel.shape, micro_batch).validate()?;
        let key = (KernelId { math: Math::Fp32, ..*kernel }, micro_batch);
        let cuda = self.cuda.clone();
        let measured = cuda.with_library(|cudnn: &mut Cudnn| -> Result<_, ConvError> {
            let mut rows = match self.fp32.get(&key) {
                Some(rows) => rows.clone(),
                None => self.rows(cudnn, kernel, Math::Fp32, micro_batch)?,
            };
            self.fp32.entry(key).or_insert_with(|| rows.clone());
            if kernel.math == Math::Tf32 {
                rows.extend(self.rows(cudnn, kernel, Math::Tf32, micro_batch)?);
            }
            Ok(rows)
        });
        Ok(measured?)
    }
}

/// The time between each two neighbours of `events`, with `work` done between them.
fn intervals_ms<E: From<CudaError>>(
    events: &[Event],
    mut work: impl FnMut() -> Result<(), E>,
) -> Result<Vec<f64>, E> {
    events[0].record()?;
    for event in &events[1..] {
        work()?;
        event.record()?;
    }
    Ok(events.windows(2).map(|pair| pair[0].elapsed_ms(&pair[1])).collect::<Result<_, CudaError>>()?)
}

/// Throw-away operands of one kernel.
#[derive(Debug)]
struct Bench {
    op: ConvOp,
    /// With as many samples as there are operands for.
    geometry: ConvGeometry,
    arena: DeviceArena,
    spans: [Span; 3],
    calls: usize,
}

impl Bench {
    fn new(
        cudnn: &Cudnn,
        op: ConvOp,
        geometry: ConvGeometry,
        pattern: &[f32],
        arena: Option<DeviceArena>,
    ) -> Result<Self, CudaError> {
        let mut end = 0;
        let spans = operand_lens(op, &geometry).map(|len| {
            let span = Span { offset: end, len };
            end += len.next_multiple_of(ALIGNMENT);
            span
        });
        let mut arena = reuse(cudnn, arena, end)?;
        arena.repeat(Span { offset: 0, len: end }, pattern)?;
        Ok(Self { op, geometry, arena, spans, calls: 0 })
    }

    fn holds(&self, op: ConvOp, geometry: &ConvGeometry) -> bool {
        self.op == op && self.geometry.with_batch(geometry.n) == *geometry && geometry.n <= self.geometry.n
    }

    /// One call, on the next slice that there is.
    fn call(
        &mut self,
        cudnn: &Cudnn,
        convolution: &Convolution,
        workspace: &mut DeviceArena,
    ) -> Result<(), ConvError> {
        let samples = convolution.geometry().n;
        let first = self.calls % (self.geometry.n / samples) * samples;
        self.calls += 1;
        let ranges = slices(self.op, &self.geometry, &(first..first + samples));
        let mut spans = self.spans;
        for (span, range) in spans.iter_mut().zip(ranges) {
            *span = Span { offset: span.offset + range.start, len: range.len() };
        }
        let is_part = samples < self.geometry.n;
        let adds_up = self.op == ConvOp::BackwardFilter && is_part;
        let accumulate = if adds_up { Accumulate::Add } else { Accumulate::Replace };
        let [a, b, out] = spans;
        let leases = self.arena.lease(&[(a, Access::Read), (b, Access::Read), (out, Access::Write)]);
        let leases = <[Lease<'_>; 3]>::try_from(leases.expect("spans side by side"));
        let [Lease::Read(a), Lease::Read(b), Lease::Write(mut out)] = leases.expect("three requests") else {
            unreachable!("leases come in the order of the requests")
        };
        let workspace = workspace.view_mut(Span { offset: 0, len: convolution.workspace_len() });
        convolution.run(cudnn, [a.device(), b.device()], out.device(), accumulate, workspace)
    }
}

/// `arena` if it has `len` elements, and otherwise a new one in its place.
fn reuse(cudnn: &Cudnn, arena: Option<DeviceArena>, len: usize) -> Result<DeviceArena, CudaError> {
    match arena {
        Some(arena) if arena.len() >= len => Ok(arena),
        // The old one goes first: there need not be room for both.
        old => {
            drop(old);
            DeviceArena::new(cudnn.stream(), len)
        }
    }
}
