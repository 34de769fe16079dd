//! Timing calls on a GPU.

use super::{ProfileOptions, Trial, bench::Bench};
use crate::conv::{ConvError, Convolver, Result, error::is_unsupported};
use planner::Request;
use std::time::{Duration, Instant};
use tensor::Arena;
use tensor::cuda::{Cuda, CudaError, Event};

/// A call that takes this many times as long as one that needs no more workspace will not be chosen, and is timed once.
const HOPELESS: f64 = 1.5;

/// An algorithm that takes this many times as long as another that is as good in everything else, at the two largest of
/// the smaller sizes, and does not catch up from one to the other by more than this part, has lost the kernel.
const LOST: f64 = 2.0;
const CATCHES_UP: f64 = 0.05;

/// Most calls between two events, however short they are.
const MOST_CALLS: usize = 50;

/// A call that takes this many times as long as one of more samples was disturbed, by the loading of its code or by
/// others, and is timed again.
const DISTURBED: f64 = 1.1;
/// The same of time per sample and fewer samples, where whole waves of thread blocks make steps.
const DISTURBED_PER_SAMPLE: f64 = 1.5;

/// How long the GPU works at most before the first measurement, for it is slow to leave its idle clocks; and for how
/// long between two looks at whether it still becomes faster.
const SPIN_UP: Duration = Duration::from_millis(300);
const SPIN: Duration = Duration::from_millis(20);
/// It does not become faster if a call takes this part of what it took before.
const STEADY: f64 = 0.98;

/// Bytes of the memory that is filled to keep the GPU busy, how often it is to find out how long that takes, and the
/// most that launching a call is taken to cost.
const BALLAST_LEN: usize = 64 << 20;
const TRIAL_FILLS: usize = 8;
const MOST_LAUNCH_MS: f64 = 0.2;

impl Trial {
    /// Whether no other in its series is near enough in size to show what disturbed it.
    fn is_alone(series: &[Trial], place: usize) -> bool {
        let samples = series[place].samples();
        let is_near = |other: &&Trial| 8 * samples.abs_diff(other.samples()) <= samples;
        series.iter().filter(is_near).count() == 1
    }

    /// The places in a series, by rising size, where fewer samples take longer, or more samples much longer each.
    fn disturbed(series: &[Trial]) -> Vec<usize> {
        let known = series.iter().enumerate();
        let known: Vec<(usize, f64, f64)> = known
            .filter_map(|(place, trial)| Some((place, trial.samples() as f64, trial.time_ms?)))
            .collect();
        let mut disturbed = Vec::new();
        for pair in known.windows(2) {
            let [(below, fewer, below_ms), (above, more, above_ms)] = [pair[0], pair[1]];
            if below_ms > DISTURBED * above_ms {
                disturbed.push(below);
            }
            if above_ms / more > DISTURBED_PER_SAMPLE * below_ms / fewer {
                disturbed.push(above);
            }
        }
        disturbed
    }
}

/// Times calls between events. Calls follow each other on a GPU that is never out of work, so that launching them costs
/// nothing. All sizes of an algorithm are timed in one go, and one call of each is enough if it is not short: times on
/// a GPU repeat within a per cent or two. Repeated are calls shorter than the options say, sizes with no measured
/// neighbour, and outliers.
#[derive(Debug)]
pub(super) struct GpuClock {
    cuda: Cuda,
    /// Filler work: it is quickly launched to fill this memory, and takes the GPU a while.
    ballast: Arena,
    /// How many milliseconds; infinite before the GPU has left its idle clocks.
    filling_ms: f64,
}

impl GpuClock {
    pub(super) fn new(cuda: &Cuda) -> Result<Self, CudaError> {
        let ballast = Arena::unset(cuda.stream(), BALLAST_LEN)?;
        Ok(Self { cuda: cuda.clone(), ballast, filling_ms: f64::INFINITY })
    }

    /// Times the `trials` of a kernel, a series for each algorithm. Returns those that have lost the kernel.
    pub(super) fn time(
        &mut self,
        trials: &mut [Vec<Trial>],
        requests: &[Request],
        bench: &mut Bench,
        options: &ProfileOptions,
    ) -> Result<Vec<String>> {
        if self.filling_ms.is_infinite()
            && let Some(most) = trials.iter().flatten().max_by_key(|trial| trial.samples())
        {
            self.spin_up(bench, &*most.convolver)?;
        }
        // The smaller sizes, which cost little, show which algorithms need not try the larger ones.
        let largest = requests.iter().map(|request| request.micro_batch as usize).max().unwrap_or(0);
        let is_small = |trial: &Trial| 4 * trial.samples() <= largest;
        let small: Vec<usize> = trials.iter().map(|series| series.partition_point(is_small)).collect();
        for (series, &small) in std::iter::zip(&mut *trials, &small) {
            self.once(bench, &mut series[..small], 0)?;
        }
        let lost = if options.every_algorithm { Vec::new() } else { lost(trials, requests) };
        for (place, (series, small)) in std::iter::zip(&mut *trials, small).enumerate() {
            if lost.contains(&place) {
                series.truncate(small);
            }
            self.once(bench, series, small)?;
        }
        let doubtful = doubtful(trials, requests, options.at_least);
        for (series, doubtful) in std::iter::zip(&mut *trials, doubtful) {
            let again = std::iter::zip(series, doubtful).filter_map(|(trial, again)| again.then_some(trial));
            self.again(bench, &mut again.collect::<Vec<_>>(), options.at_least)?;
        }
        Ok(lost.into_iter().map(|place| trials[place][0].convolver.facts().name.clone()).collect())
    }

    /// Times one call of every trial of a series, which is one algorithm by rising size, from place `first` on: that
    /// keeps the code and the clocks, and the largest, which is most likely to matter, never comes first.
    fn once(&self, bench: &mut Bench, series: &mut [Trial], first: usize) -> Result<()> {
        if first == series.len() {
            return Ok(());
        }
        let events = self.events(series.len() - first + 1)?;
        // Loads the algorithm's code, and keeps the GPU busy until the next call is launched.
        launch(bench, &*series[0].convolver)?;
        let series = &mut series[first..];
        events[0].record()?;
        let mut runs = Vec::with_capacity(series.len());
        for (place, trial) in series.iter_mut().enumerate() {
            let start = Instant::now();
            runs.push(launch(bench, &*trial.convolver)?);
            trial.launch_ms = (start.elapsed().as_secs_f64() * 1e3).min(MOST_LAUNCH_MS);
            events[place + 1].record()?;
        }
        for (place, trial) in series.iter_mut().enumerate().filter(|(place, _)| runs[*place]) {
            trial.time_ms = Some(events[place].elapsed_ms(&events[place + 1])?);
        }
        Ok(())
    }

    /// Times trials that run once more, for `at_least` as long, and keeps the shorter times: what disturbs makes
    /// slower, never faster. The GPU is kept busy until all calls of a trial are launched, as it is in a net.
    fn again(&mut self, bench: &mut Bench, trials: &mut [&mut Trial], at_least: Duration) -> Result<()> {
        let events = self.events(2 * trials.len())?;
        let mut calls = Vec::with_capacity(trials.len());
        for (place, trial) in trials.iter().enumerate() {
            let time_ms = trial.time_ms.unwrap_or(f64::INFINITY).max(1e-4);
            calls.push(((at_least.as_secs_f64() * 1e3 / time_ms).ceil() as usize).clamp(1, MOST_CALLS));
            if 2.0 * trial.launch_ms > time_ms {
                let busy_ms = (1 + calls[place]) as f64 * trial.launch_ms;
                self.fill((busy_ms / self.filling_ms).ceil() as usize)?;
            }
            launch(bench, &*trial.convolver)?;
            events[2 * place].record()?;
            for _ in 0..calls[place] {
                launch(bench, &*trial.convolver)?;
            }
            events[2 * place + 1].record()?;
        }
        for (place, trial) in trials.iter_mut().enumerate() {
            let interval_ms = events[2 * place].elapsed_ms(&events[2 * place + 1])?;
            trial.time_ms = trial.time_ms.map(|time_ms| time_ms.min(interval_ms / calls[place] as f64));
        }
        Ok(())
    }

    /// Keeps the GPU busy until it does not become faster any more, and then finds out what keeps it busy for how long.
    fn spin_up(&mut self, bench: &mut Bench, convolver: &dyn Convolver) -> Result<()> {
        let (start, mut fastest) = (Instant::now(), f64::INFINITY);
        while start.elapsed() < SPIN_UP {
            let (look, mut calls) = (Instant::now(), 0);
            while look.elapsed() < SPIN {
                launch(bench, convolver)?;
                self.cuda.stream().synchronize()?;
                calls += 1;
            }
            let call = look.elapsed().as_secs_f64() / f64::from(calls);
            if call > STEADY * fastest {
                break;
            }
            fastest = call;
        }
        let events = self.events(2)?;
        events[0].record()?;
        self.fill(TRIAL_FILLS)?;
        events[1].record()?;
        self.filling_ms = events[0].elapsed_ms(&events[1])?.max(1e-3) / TRIAL_FILLS as f64;
        Ok(())
    }

    /// Keeps the GPU busy for so many times what it takes to fill the ballast.
    fn fill(&mut self, times: usize) -> Result<(), CudaError> {
        (0..times).try_for_each(|_| self.ballast.set(self.ballast.all(), 0))
    }

    fn events(&self, count: usize) -> Result<Vec<Event>, CudaError> {
        (0..count).map(|_| self.cuda.stream().event()).collect()
    }
}

/// Launches a call. Returns whether the algorithm runs after all.
fn launch(bench: &mut Bench, convolver: &dyn Convolver) -> Result<bool> {
    let (operands, out, workspace) = bench.next(convolver);
    match convolver.run(operands, out, workspace) {
        Ok(()) => Ok(true),
        Err(ConvError::Algorithm { source, .. }) if is_unsupported(&source) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The places of the series whose algorithms have lost: of those that were not requested by name.
fn lost(trials: &[Vec<Trial>], requests: &[Request]) -> Vec<usize> {
    let lags = |trial: &Trial| {
        let time_ms = trial.time_ms.filter(|_| requests[trial.request].algorithms.is_none())?;
        let row = |trial: &Trial| trial.convolver.measurement(0.0, 0.0);
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

/// Which trials of each series need another look, if they are not hopeless and long.
fn doubtful(trials: &[Vec<Trial>], requests: &[Request], at_least: Duration) -> Vec<Vec<bool>> {
    let of_series = |series: &Vec<Trial>| {
        let disturbed = Trial::disturbed(series);
        let is_doubtful = |(place, trial): (usize, &Trial)| {
            let Some(time_ms) = trial.time_ms else { return false };
            let beats = |other: &Trial| {
                other.request == trial.request
                    && other.convolver.facts().workspace <= trial.convolver.facts().workspace
                    && other.time_ms.is_some_and(|other_ms| HOPELESS * other_ms < time_ms)
            };
            // To be timed alone, or so short that the GPU had to wait for it.
            let is_short = at_least.as_secs_f64() * 1e3 > time_ms || 2.0 * trial.launch_ms > time_ms;
            // A size that is requested whole stands for the sizes around it.
            let stands_alone = requests[trial.request].algorithms.is_none() && Trial::is_alone(series, place);
            let is_hopeless = || trials.iter().flatten().any(beats);
            is_short || disturbed.contains(&place) || stands_alone && !is_hopeless()
        };
        series.iter().enumerate().map(is_doubtful).collect()
    };
    trials.iter().map(of_series).collect()
}
