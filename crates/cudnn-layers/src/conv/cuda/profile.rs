//! Measuring every algorithm of a kernel on the GPU.

use super::{Convolution, CudaAlgorithm, algorithms};
use crate::conv::profile::{ProfileOptions, geometry};
use crate::conv::{ConvError, ConvOp, operand_lens, run::slices};
use crate::raw::Cudnn;
use planner::{Candidate, Done, KernelId, Measurement, Profiler, ProfilerError, Request, RequestError};
use std::time::{Duration, Instant};
use tensor::{
    Access, Accumulate, ConvGeometry, Lease, Span,
    arena::ALIGNMENT,
    cuda::{Cuda, CudaError, DeviceArena, Event},
};

/// Most calls between two events, however short they are.
const MOST_CALLS: usize = 50;

/// A call that takes this many times as long as one of more samples was disturbed, by the loading of its code or by others,
/// and is timed again.
const DISTURBED: f64 = 1.1;

/// How long the GPU works at most before the first measurement, for it is slow to leave its idle clocks; and for how long
/// between two looks at whether it still becomes faster.
const SPIN_UP: Duration = Duration::from_millis(300);
const SPIN: Duration = Duration::from_millis(20);
/// It does not become faster if a call takes this part of what it took before.
const STEADY: f64 = 0.98;

/// Measures kernels on a GPU, on operands of its own that no one else sees.
///
/// Calls are timed as they will run: many in a row without waiting, between events, so that starting a call costs what it
/// costs there (nothing while the GPU is busy with the call before, all of it if calls are short). All sizes of an algorithm
/// are timed in one go, and one call of each is enough if it is not short: times on a GPU repeat within a per cent.
/// Micro-batches smaller than the largest one measured so far of a kernel are taken in turn from the slices of that one's
/// operands: at the addresses, with the alignment and with the caches that they will have as parts of a mini-batch,
/// adding up if they are parts of a filter gradient.
#[derive(Debug)]
pub struct CudaProfiler {
    cuda: Cuda,
    options: ProfileOptions,
    events: Vec<Event>,
    pattern: Vec<f32>,
    bench: Option<Bench>,
    workspace: Option<DeviceArena>,
    spun_up: bool,
}

impl CudaProfiler {
    /// A profiler on `cuda`. Calls are timed until they have taken `options.at_least` together.
    pub fn new(cuda: &Cuda, options: ProfileOptions) -> Self {
        Self {
            cuda: cuda.clone(),
            options,
            events: Vec::new(),
            // Values of training's size: zeros would make a GPU faster than it is.
            pattern: tensor::testing::random(1 << 20, 1),
            bench: None,
            workspace: None,
            spun_up: false,
        }
    }

    /// The measurements of each of `requests`, which are about one kernel.
    fn rows(&mut self, cudnn: &Cudnn, requests: &[Request]) -> Result<Vec<Vec<Measurement>>, ConvError> {
        let Some(largest) = requests.iter().max_by_key(|request| request.micro_batch) else {
            return Ok(Vec::new());
        };
        let KernelId { op, math, ref shape, .. } = largest.kernel;
        cudnn.stream().bind()?;
        let mut bench = self.bench(cudnn, op, geometry(shape, largest.micro_batch))?;
        let mut rows = vec![Vec::new(); requests.len()];
        for algorithm in algorithms(op, math) {
            let mut series = self.series(cudnn, algorithm, requests)?;
            // One size after the other keeps the code and the clocks, and the largest never comes first.
            series.sort_by_key(|(_, convolution)| convolution.geometry().n);
            let len = series.iter().map(|(_, convolution)| convolution.workspace_len()).max().unwrap_or(0);
            let convolutions: Vec<&Convolution> = series.iter().map(|(_, convolution)| convolution).collect();
            let mut workspace = reuse(cudnn, self.workspace.take(), len)?;
            let events = &mut self.events;
            let mut timing = Timing { cudnn, bench: &mut bench, workspace: &mut workspace, events };
            if let (false, Some(largest)) = (self.spun_up, convolutions.last()) {
                timing.spin_up(largest)?;
                self.spun_up = true;
            }
            let times_ms = timing.series_ms(&convolutions, self.options.at_least)?;
            for ((request, convolution), time_ms) in std::iter::zip(&series, times_ms) {
                let micro_batch = requests[*request].micro_batch;
                rows[*request]
                    .extend(time_ms.map(|time_ms| candidate(convolution).taking(micro_batch, time_ms)));
            }
            self.workspace = Some(workspace);
        }
        self.bench = Some(bench);
        Ok(rows)
    }

    /// `algorithm` where it applies and is asked for, each with the index of the request.
    fn series(
        &self,
        cudnn: &Cudnn,
        algorithm: &'static CudaAlgorithm,
        requests: &[Request],
    ) -> Result<Vec<(usize, Convolution)>, ConvError> {
        let mut series = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            if request.asks_for(algorithm.name()) {
                let convolution = self.convolution(cudnn, algorithm, request)?;
                series.extend(convolution.map(|convolution| (index, convolution)));
            }
        }
        Ok(series)
    }

    /// `algorithm` for a request, if it applies and is worth a measurement.
    fn convolution(
        &self,
        cudnn: &Cudnn,
        algorithm: &'static CudaAlgorithm,
        request: &Request,
    ) -> Result<Option<Convolution>, ConvError> {
        let geometry = geometry(&request.kernel.shape, request.micro_batch);
        let convolution = Convolution::new(cudnn, algorithm, geometry)?;
        Ok(convolution.filter(|convolution| convolution.workspace() <= self.options.largest_workspace))
    }

    /// Operands that hold `geometry`: those that are there if they belong to the same kernel and are large enough.
    fn bench(&mut self, cudnn: &Cudnn, op: ConvOp, geometry: ConvGeometry) -> Result<Bench, CudaError> {
        match self.bench.take() {
            Some(bench) if bench.holds(op, &geometry) => Ok(bench),
            old => Bench::new(cudnn, op, geometry, &self.pattern, old.map(|bench| bench.arena)),
        }
    }
}

impl Profiler for CudaProfiler {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let mut measured = Vec::new();
        let served = self.measure_each(std::slice::from_ref(request), &mut |_, rows| {
            measured = rows;
            Ok(())
        });
        served.map_err(|error| error.source)?;
        Ok(measured)
    }

    /// Neighbours about one kernel are measured together.
    fn measure_each(&mut self, requests: &[Request], done: Done<'_>) -> Result<(), RequestError> {
        validate(requests)?;
        let mut first = 0;
        let cuda = self.cuda.clone();
        for of_kernel in requests.chunk_by(|a, b| a.kernel == b.kernel) {
            let rows = cuda.with_library(|cudnn: &mut Cudnn| self.rows(cudnn, of_kernel));
            let rows = rows.map_err(|error| RequestError { index: first, source: error.into() })?;
            for (index, rows) in (first..).zip(rows) {
                done(index, rows).map_err(|source| RequestError { index, source })?;
            }
            first += of_kernel.len();
        }
        Ok(())
    }

    fn candidates(&mut self, requests: &[Request]) -> Result<Option<Vec<Vec<Candidate>>>, RequestError> {
        validate(requests)?;
        let cuda = self.cuda.clone();
        let of = |(index, request): (usize, &Request)| {
            let of_request = cuda.with_library(|cudnn: &mut Cudnn| -> Result<_, ConvError> {
                cudnn.stream().bind()?;
                let mut candidates = Vec::new();
                for algorithm in algorithms(request.kernel.op, request.kernel.math) {
                    candidates.extend(self.convolution(cudnn, algorithm, request)?.as_ref().map(candidate));
                }
                Ok(candidates)
            });
            of_request.map_err(|error| RequestError { index, source: error.into() })
        };
        requests.iter().enumerate().map(of).collect::<Result<_, _>>().map(Some)
    }
}

/// Refuses requests that describe no convolution.
fn validate(requests: &[Request]) -> Result<(), RequestError> {
    for (index, request) in requests.iter().enumerate() {
        let valid = geometry(&request.kernel.shape, request.micro_batch).validate();
        valid.map_err(|error| RequestError { index, source: error.into() })?;
    }
    Ok(())
}

fn candidate(convolution: &Convolution) -> Candidate {
    let algorithm = convolution.algorithm();
    Candidate {
        algorithm: algorithm.name().into(),
        workspace: convolution.workspace(),
        max_error: algorithm.max_error(convolution.geometry()),
        deterministic: algorithm.deterministic(),
    }
}

/// What timing needs.
struct Timing<'t> {
    cudnn: &'t Cudnn,
    bench: &'t mut Bench,
    workspace: &'t mut DeviceArena,
    events: &'t mut Vec<Event>,
}

impl Timing<'_> {
    /// Milliseconds of one call of each of `convolutions`, which are one algorithm by rising size; `None` for those that
    /// give a workspace size and refuse to run all the same. Calls shorter than `at_least` are repeated for as long.
    fn series_ms(
        &mut self,
        convolutions: &[&Convolution],
        at_least: Duration,
    ) -> Result<Vec<Option<f64>>, ConvError> {
        let mut times_ms = self.intervals_ms(convolutions, |place| [usize::from(place == 0), 1])?;
        let at_least_ms = at_least.as_secs_f64() * 1e3;
        let calls = |time_ms: f64| ((at_least_ms / time_ms.max(1e-4)).ceil() as usize).clamp(1, MOST_CALLS);
        let disturbed = disturbed(convolutions, &times_ms);
        let doubtful = |place: usize| disturbed.contains(&place) || is_alone(convolutions, place);
        let again: Vec<usize> = (0..times_ms.len())
            .filter(|&place| times_ms[place].is_some_and(|time_ms| calls(time_ms) > 1 || doubtful(place)))
            .collect();
        let repeated: Vec<&Convolution> = again.iter().map(|&index| convolutions[index]).collect();
        let repeated_ms =
            self.intervals_ms(&repeated, |place| [1, times_ms[again[place]].map_or(1, calls)])?;
        for (place, repeated_ms) in std::iter::zip(again, repeated_ms) {
            // What disturbs makes slower, never faster.
            if let (Some(time_ms), Some(repeated_ms)) = (&mut times_ms[place], repeated_ms) {
                *time_ms = time_ms.min(repeated_ms);
            }
        }
        Ok(times_ms)
    }

    /// Milliseconds of one call of each of `convolutions`, all asked for before any is waited for. `calls` says how often
    /// each runs before its time counts, while code is loaded and the GPU gets something to do, and how often then.
    fn intervals_ms(
        &mut self,
        convolutions: &[&Convolution],
        calls: impl Fn(usize) -> [usize; 2],
    ) -> Result<Vec<Option<f64>>, ConvError> {
        while self.events.len() < 2 * convolutions.len() {
            self.events.push(self.cudnn.stream().event()?);
        }
        let mut runs = Vec::with_capacity(convolutions.len());
        for (place, convolution) in convolutions.iter().enumerate() {
            let mut all_run = true;
            for (event, calls) in std::iter::zip([2 * place, 2 * place + 1], calls(place)) {
                for _ in 0..calls {
                    all_run = all_run && self.call(convolution)?;
                }
                self.events[event].record()?;
            }
            runs.push(all_run);
        }
        let elapsed_ms = |place: usize| self.events[2 * place].elapsed_ms(&self.events[2 * place + 1]);
        let time_ms = |(place, runs): (usize, bool)| {
            runs.then(|| Ok(elapsed_ms(place)? / calls(place)[1] as f64)).transpose()
        };
        runs.into_iter().enumerate().map(time_ms).collect()
    }

    /// Asks for a call. Returns whether the algorithm runs after all.
    fn call(&mut self, convolution: &Convolution) -> Result<bool, ConvError> {
        match self.bench.call(self.cudnn, convolution, self.workspace) {
            Ok(()) => Ok(true),
            Err(ConvError::Algorithm { source, .. }) if source.is_unsupported() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Keeps the GPU busy until it does not become faster any more.
    fn spin_up(&mut self, convolution: &Convolution) -> Result<(), ConvError> {
        let (start, mut fastest) = (Instant::now(), f64::INFINITY);
        while start.elapsed() < SPIN_UP {
            let (look, mut calls) = (Instant::now(), 0);
            while look.elapsed() < SPIN {
                self.call(convolution)?;
                self.cudnn.stream().synchronize()?;
                calls += 1;
            }
            let call = look.elapsed().as_secs_f64() / f64::from(calls);
            if call > STEADY * fastest {
                break;
            }
            fastest = call;
        }
        Ok(())
    }
}

/// Whether no neighbour in the series is near enough in size to show what disturbed the one at `place`.
fn is_alone(convolutions: &[&Convolution], place: usize) -> bool {
    let samples = |place: usize| convolutions[place].geometry().n;
    let near = |other: usize| 8 * samples(place).abs_diff(samples(other)) <= samples(place);
    let neighbours = [place.checked_sub(1), Some(place + 1).filter(|&next| next < convolutions.len())];
    !neighbours.into_iter().flatten().any(near)
}

/// The places of times that say that fewer samples take longer, or that more samples take much longer each.
fn disturbed(convolutions: &[&Convolution], times_ms: &[Option<f64>]) -> Vec<usize> {
    let known: Vec<(usize, f64)> =
        times_ms.iter().enumerate().filter_map(|(place, time_ms)| Some((place, (*time_ms)?))).collect();
    let samples = |place: usize| convolutions[place].geometry().n as f64;
    let mut disturbed = Vec::new();
    for pair in known.windows(2) {
        let [(below, below_ms), (above, above_ms)] = [pair[0], pair[1]];
        if below_ms > DISTURBED * above_ms {
            disturbed.push(below);
        }
        if above_ms > DISTURBED.powi(4) * below_ms * samples(above) / samples(below) {
            disturbed.push(above);
        }
    }
    disturbed
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
