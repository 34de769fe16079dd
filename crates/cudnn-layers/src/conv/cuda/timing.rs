//! Timing calls on a GPU.

use super::Convolution;
use crate::conv::{ConvError, bench::Bench};
use crate::cudnn::Cudnn;
use std::time::{Duration, Instant};
use tensor::{
    Arena, Span,
    cuda::{CudaError, Event},
};

/// Most calls between two events, however short they are.
const MOST_CALLS: usize = 50;

/// A call that takes this many times as long as one of more samples was disturbed, by the loading of its code or by others,
/// and is timed again.
const DISTURBED: f64 = 1.1;
/// The same of time per sample and fewer samples, where whole waves of thread blocks make steps.
const DISTURBED_PER_SAMPLE: f64 = 1.5;

/// How long the GPU works at most before the first measurement, for it is slow to leave its idle clocks; and for how long
/// between two looks at whether it still becomes faster.
const SPIN_UP: Duration = Duration::from_millis(300);
const SPIN: Duration = Duration::from_millis(20);
/// It does not become faster if a call takes this part of what it took before.
const STEADY: f64 = 0.98;

/// Bytes of the memory that is filled to keep the GPU busy, and the most that asking for a call is taken to cost.
const BALLAST_LEN: usize = 64 << 20;
const MOST_ASKING_MS: f64 = 0.2;

/// One algorithm at one size, and what was found out about it.
pub(super) struct Trial {
    /// Which request it is part of.
    pub(super) request: usize,
    pub(super) convolution: Convolution,
    /// Milliseconds of a call; `None` if it gives a workspace size and refuses to run all the same.
    pub(super) time_ms: Option<f64>,
    /// Milliseconds that it took the host to ask for a call.
    asking_ms: f64,
}

impl Trial {
    /// Nothing known yet.
    pub(super) fn new(request: usize, convolution: Convolution) -> Self {
        Self { request, convolution, time_ms: None, asking_ms: 0.0 }
    }

    /// Samples of a call.
    pub(super) fn samples(&self) -> usize {
        self.convolution.geometry().n
    }

    /// Whether one call is too short to be timed alone, or so short that the GPU had to wait for it.
    pub(super) fn is_short(&self, at_least: Duration) -> bool {
        let longer_than = |time_ms| at_least.as_secs_f64() * 1e3 > time_ms || 2.0 * self.asking_ms > time_ms;
        self.time_ms.is_some_and(longer_than)
    }

    /// Whether neither neighbour in its series is near enough in size to show what disturbed it.
    pub(super) fn is_alone(series: &[Trial], place: usize) -> bool {
        let neighbours = [place.checked_sub(1), Some(place + 1)];
        let mut neighbours = neighbours.into_iter().flatten().filter_map(|place| series.get(place));
        let samples = series[place].samples();
        !neighbours.any(|other| 8 * samples.abs_diff(other.samples()) <= samples)
    }

    /// The places in a series, by rising size, whose times say that fewer samples take longer, or that more samples take
    /// much longer each.
    pub(super) fn disturbed(series: &[Trial]) -> Vec<usize> {
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

/// What timing needs.
pub(super) struct Timing<'t> {
    pub(super) cudnn: &'t Cudnn,
    pub(super) bench: &'t mut Bench,
    pub(super) workspace: &'t mut Arena,
    pub(super) ballast: &'t mut Ballast,
    pub(super) events: &'t mut Vec<Event>,
}

impl Timing<'_> {
    /// Times one call of every trial of a series, which is one algorithm by rising size, from place `first` on: that keeps
    /// the code and the clocks, and the largest, which is most likely to matter, never comes first.
    pub(super) fn once(&mut self, series: &mut [Trial], first: usize) -> Result<(), ConvError> {
        if first == series.len() {
            return Ok(());
        }
        // Loads the algorithm's code, and keeps the GPU busy until the next call is asked for.
        self.call(&series[0].convolution)?;
        let series = &mut series[first..];
        self.reserve(series.len() + 1)?;
        self.events[0].record()?;
        let mut runs = Vec::with_capacity(series.len());
        for (place, trial) in series.iter_mut().enumerate() {
            let start = Instant::now();
            runs.push(self.call(&trial.convolution)?);
            trial.asking_ms = (start.elapsed().as_secs_f64() * 1e3).min(MOST_ASKING_MS);
            self.events[place + 1].record()?;
        }
        for (place, trial) in series.iter_mut().enumerate().filter(|(place, _)| runs[*place]) {
            trial.time_ms = Some(self.events[place].elapsed_ms(&self.events[place + 1])?);
        }
        Ok(())
    }

    /// Times trials that run once more, for `at_least` as long, and keeps the shorter times: what disturbs makes slower,
    /// never faster. The GPU is kept busy until all calls of a trial are asked for, as it is in a net.
    pub(super) fn again(&mut self, trials: &mut [&mut Trial], at_least: Duration) -> Result<(), ConvError> {
        self.reserve(2 * trials.len())?;
        let mut calls = Vec::with_capacity(trials.len());
        for (place, trial) in trials.iter().enumerate() {
            let time_ms = trial.time_ms.unwrap_or(f64::INFINITY).max(1e-4);
            calls.push(((at_least.as_secs_f64() * 1e3 / time_ms).ceil() as usize).clamp(1, MOST_CALLS));
            if 2.0 * trial.asking_ms > time_ms {
                self.ballast.load((1 + calls[place]) as f64 * trial.asking_ms)?;
            }
            self.call(&trial.convolution)?;
            self.events[2 * place].record()?;
            for _ in 0..calls[place] {
                self.call(&trial.convolution)?;
            }
            self.events[2 * place + 1].record()?;
        }
        for (place, trial) in trials.iter_mut().enumerate() {
            let interval_ms = self.events[2 * place].elapsed_ms(&self.events[2 * place + 1])?;
            trial.time_ms = trial.time_ms.map(|time_ms| time_ms.min(interval_ms / calls[place] as f64));
        }
        Ok(())
    }

    /// Keeps the GPU busy until it does not become faster any more, and then finds out what keeps it busy for how long.
    pub(super) fn spin_up(&mut self, convolution: &Convolution) -> Result<(), ConvError> {
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
        self.reserve(2)?;
        Ok(self.ballast.calibrate([&self.events[0], &self.events[1]])?)
    }

    fn reserve(&mut self, events: usize) -> Result<(), CudaError> {
        while self.events.len() < events {
            self.events.push(self.cudnn.stream().event()?);
        }
        Ok(())
    }

    /// Asks for a call. Returns whether the algorithm runs after all.
    fn call(&mut self, convolution: &Convolution) -> Result<bool, ConvError> {
        let (operands, out, accumulate) = self.bench.next(convolution.geometry().n);
        let workspace = self.workspace.view_mut(Span::bytes(0, convolution.workspace().0 as usize));
        match convolution.run(self.cudnn, operands, out, accumulate, workspace) {
            Ok(()) => Ok(true),
            Err(ConvError::Algorithm { source, .. }) if source.is_unsupported() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Work that is asked for quickly and takes the GPU a while.
#[derive(Debug)]
pub(super) struct Ballast {
    arena: Arena,
    /// Milliseconds that filling it takes.
    filling_ms: f64,
}

impl Ballast {
    /// Some memory, of which nobody knows yet how long it takes to fill.
    pub(super) fn new(cudnn: &Cudnn) -> Result<Self, CudaError> {
        Ok(Self { arena: Arena::unset(cudnn.stream(), BALLAST_LEN)?, filling_ms: f64::INFINITY })
    }

    /// Finds out how long it takes.
    fn calibrate(&mut self, [start, end]: [&Event; 2]) -> Result<(), CudaError> {
        const FILLS: u8 = 8;
        start.record()?;
        (0..FILLS).try_for_each(|_| self.arena.set(self.arena.all(), 0))?;
        end.record()?;
        self.filling_ms = start.elapsed_ms(end)?.max(1e-3) / f64::from(FILLS);
        Ok(())
    }

    /// Asks for work of about so many milliseconds.
    fn load(&mut self, milliseconds: f64) -> Result<(), CudaError> {
        let fills = (milliseconds / self.filling_ms).ceil() as usize;
        (0..fills).try_for_each(|_| self.arena.set(self.arena.all(), 0))
    }
}
