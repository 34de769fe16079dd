//! Measuring every algorithm of a kernel on the GPU.

use super::{
    Convolution, CudaAlgorithm, algorithms,
    timing::{Ballast, Timing, Trial},
};
use crate::conv::profile::{ProfileOptions, geometry};
use crate::conv::{
    ConvError, ConvOp,
    bench::{Bench, reuse},
};
use crate::cudnn::Cudnn;
use planner::{Bytes, Done, KernelId, Measurement, Profiler, ProfilerError, Request, RequestError};
use std::{collections::HashSet, time::Duration};
use tensor::{
    Arena, ConvGeometry,
    cuda::{Cuda, CudaError, Event},
};

/// A call that takes this many times as long as one that needs no more workspace will not be chosen, and is timed once.
const HOPELESS: f64 = 1.5;

/// An algorithm that takes this many times as long as another that is as good in everything else, at the two largest of
/// the smaller sizes, and does not catch up from one to the other by more than this part, has lost the kernel.
const LOST: f64 = 2.0;
const CATCHES_UP: f64 = 0.05;

/// Measures kernels on a GPU, on operands of its own that no one else sees.
///
/// Calls are timed as they will run: many in a row, between events, on a GPU that is never out of work, so that asking for
/// them costs nothing. All sizes of an algorithm are timed in one go, and one call of each is enough if it is not short:
/// times on a GPU repeat within a per cent or two. Short ones are repeated, and so are sizes of their own, which stand for many
/// others, and whatever looks disturbed.
/// Micro-batches are taken in turn from the slices of the mini-batch's operands, whenever they are measured: at the addresses, with the alignment and with the caches that they will have as parts of a mini-batch,
/// adding up if they are parts of a filter gradient.
#[derive(Debug)]
pub struct CudaProfiler {
    cuda: Cuda,
    options: ProfileOptions,
    events: Vec<Event>,
    pattern: Vec<f32>,
    bench: Option<Bench>,
    workspace: Option<Arena>,
    /// There once the GPU has left its idle clocks.
    ballast: Option<Ballast>,
    /// Algorithms that need not be measured any more, unless they are asked for by name.
    lost: HashSet<(KernelId, &'static str)>,
}

impl CudaProfiler {
    /// A profiler on `cuda`. Calls are timed until they have taken `options.at_least` together.
    pub fn new(cuda: &Cuda, options: ProfileOptions) -> Self {
        Self {
            cuda: cuda.clone(),
            options,
            events: Vec::new(),
            // Values of training's size: zeros would make a GPU faster than it is.
            pattern: tensor::pattern::random(1 << 20, 1),
            bench: None,
            workspace: None,
            ballast: None,
            lost: HashSet::new(),
        }
    }

    /// The measurements of each of `requests`, which are about one kernel.
    fn rows(&mut self, cudnn: &Cudnn, requests: &[Request]) -> Result<Vec<Vec<Measurement>>, ConvError> {
        let Some(largest) = requests.iter().max_by_key(|request| request.micro_batch) else {
            return Ok(Vec::new());
        };
        let KernelId { op, math, ref shape, .. } = largest.kernel;
        cudnn.stream().bind()?;
        let samples = requests.iter().map(|request| request.micro_batch.max(request.mini_batch)).max();
        let mut bench = self.bench(cudnn, op, geometry(shape, samples.unwrap_or(largest.micro_batch)))?;
        let mut trials = Vec::new();
        for algorithm in algorithms(op, math) {
            trials.push(self.series(cudnn, algorithm, requests)?);
        }
        let lens = trials.iter().flatten().map(|trial| trial.convolution.workspace().0 as usize);
        let memory = |len| Arena::unset(cudnn.stream(), len);
        let mut workspace = reuse(self.workspace.take(), lens.max().unwrap_or(0), memory)?;
        let is_idle = self.ballast.is_none();
        let ballast = match &mut self.ballast {
            Some(ballast) => ballast,
            none => none.insert(Ballast::new(cudnn)?),
        };
        let (bench_ref, workspace_ref, events) = (&mut bench, &mut workspace, &mut self.events);
        let mut timing = Timing { cudnn, bench: bench_ref, workspace: workspace_ref, ballast, events };
        if let (true, Some(trial)) = (is_idle, trials.iter().flatten().max_by_key(|trial| trial.samples())) {
            timing.spin_up(&trial.convolution)?;
        }
        // The smaller sizes, which cost little, tell who need not try the larger ones.
        let is_small = |trial: &Trial| 4 * trial.samples() <= largest.micro_batch as usize;
        let small: Vec<usize> = trials.iter().map(|series| series.partition_point(is_small)).collect();
        for (series, &small) in std::iter::zip(&mut trials, &small) {
            timing.once(&mut series[..small], 0)?;
        }
        let lost = lost(&trials, requests);
        for (place, (series, small)) in std::iter::zip(&mut trials, small).enumerate() {
            if lost.contains(&place) {
                self.lost.insert((largest.kernel, series[0].convolution.algorithm().name()));
                series.truncate(small);
            }
            timing.once(series, small)?;
        }
        let hopeless = hopeless(&trials, requests.len());
        for series in &mut trials {
            let mut again = doubtful(series, requests, &hopeless, self.options.at_least);
            timing.again(&mut again, self.options.at_least)?;
        }
        (self.bench, self.workspace) = (Some(bench), Some(workspace));
        Ok(measurements(&trials, requests))
    }

    /// `algorithm` where it applies and is asked for, by rising size.
    fn series(
        &self,
        cudnn: &Cudnn,
        algorithm: &'static CudaAlgorithm,
        requests: &[Request],
    ) -> Result<Vec<Trial>, ConvError> {
        let mut series = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let has_lost = || self.lost.contains(&(request.kernel, algorithm.name()));
            if request.asks_for(algorithm.name()) && (request.algorithms.is_some() || !has_lost()) {
                let convolution = self.convolution(cudnn, algorithm, request)?;
                series.extend(convolution.map(|convolution| Trial::new(index, convolution)));
            }
        }
        series.sort_by_key(Trial::samples);
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
            old => Bench::new(op, geometry, &self.pattern, |len| {
                reuse(old.map(Bench::into_arena), len, |len| Arena::unset(cudnn.stream(), len))
            }),
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
}

/// The places of the series whose algorithms have lost: of those that were not asked for by name.
fn lost(trials: &[Vec<Trial>], requests: &[Request]) -> Vec<usize> {
    let lags = |trial: &Trial| {
        let time_ms = trial.time_ms.filter(|_| requests[trial.request].algorithms.is_none())?;
        let row = |trial: &Trial| measurement(&trial.convolution, 0.0);
        let own = row(trial);
        let rivals = trials.iter().flatten().filter(|other| other.request == trial.request);
        let as_good = rivals.filter(|other| row(other).is_as_good_as(&own));
        Some(time_ms / as_good.filter_map(|other| other.time_ms).fold(time_ms, f64::min))
    };
    let has_lost = |series: &Vec<Trial>| {
        let known: Vec<f64> = series.iter().filter_map(lags).collect();
        matches!(known[..], [.., before, last] if before > LOST && last > LOST.max((1.0 - CATCHES_UP) * before))
    };
    (0..trials.len()).filter(|&place| has_lost(&trials[place])).collect()
}

/// For each of so many requests, by workspace, the times above which a call with as much will not be chosen.
fn hopeless(trials: &[Vec<Trial>], requests: usize) -> Vec<Vec<(Bytes, f64)>> {
    let mut hopeless = vec![Vec::new(); requests];
    for trial in trials.iter().flatten() {
        hopeless[trial.request]
            .extend(trial.time_ms.map(|time_ms| (trial.convolution.workspace(), HOPELESS * time_ms)));
    }
    hopeless
}

/// The trials of a series that need another look, if they are not hopeless and long.
fn doubtful<'t>(
    series: &'t mut [Trial],
    requests: &[Request],
    hopeless: &[Vec<(Bytes, f64)>],
    at_least: Duration,
) -> Vec<&'t mut Trial> {
    let disturbed = Trial::disturbed(series);
    let is_doubtful = |(place, trial): (usize, &Trial)| {
        let Some(time_ms) = trial.time_ms else { return false };
        let beats = |&(workspace, limit_ms): &(Bytes, f64)| {
            workspace <= trial.convolution.workspace() && limit_ms < time_ms
        };
        // What is asked for whole stands for the sizes around it.
        let stands_alone = requests[trial.request].algorithms.is_none() && Trial::is_alone(series, place);
        let is_hopeless = || hopeless[trial.request].iter().any(beats);
        trial.is_short(at_least) || disturbed.contains(&place) || stands_alone && !is_hopeless()
    };
    let doubtful: Vec<bool> = series.iter().enumerate().map(is_doubtful).collect();
    std::iter::zip(series, doubtful).filter_map(|(trial, doubtful)| doubtful.then_some(trial)).collect()
}

/// What the trials found, request by request.
fn measurements(trials: &[Vec<Trial>], requests: &[Request]) -> Vec<Vec<Measurement>> {
    let mut rows = vec![Vec::new(); requests.len()];
    for Trial { request, convolution, time_ms, .. } in trials.iter().flatten() {
        rows[*request].extend(time_ms.map(|time_ms| measurement(convolution, time_ms)));
    }
    rows
}

/// Refuses requests that describe no convolution.
fn validate(requests: &[Request]) -> Result<(), RequestError> {
    for (index, request) in requests.iter().enumerate() {
        let valid = geometry(&request.kernel.shape, request.micro_batch).validate();
        valid.map_err(|error| RequestError { index, source: error.into() })?;
    }
    Ok(())
}

/// What a convolution costs if it takes so long.
fn measurement(convolution: &Convolution, time_ms: f64) -> Measurement {
    let (algorithm, geometry) = (convolution.algorithm(), convolution.geometry());
    Measurement {
        algorithm: algorithm.name().into(),
        micro_batch: geometry.n as u32,
        time_ms,
        shared_ms: 0.0,
        workspace: convolution.workspace(),
        max_error: algorithm.max_error(geometry),
        deterministic: algorithm.deterministic(),
    }
}
