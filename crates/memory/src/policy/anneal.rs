//! The fastest choices for a capacity, found by changes at random.

use super::problem::Problem;
use super::trial::{Choice, STATES, Trial};
use std::{panic::resume_unwind, thread};

/// So many units are changed from a start, within limits of its trials, and so many are placed at each capacity.
const TRIALS: (usize, [usize; 2]) = (150_000, [340, 4500]);
const PLACED: usize = 400;
/// The heat at the end, in parts of the time.
const COLD: f64 = 1e-5;

/// The best choices for a capacity, as far as they are known.
#[derive(Clone)]
pub(super) struct Annealing<'a> {
    problem: &'a Problem<'a>,
    /// The units for which there is a choice.
    units: Vec<usize>,
    capacity: u64,
    /// What a byte too much costs, in milliseconds.
    price: f64,
    /// The fastest choices that fit, with their times.
    pub(super) fits: Vec<(f64, Choice)>,
    /// The best where bytes too much are paid for.
    pub(super) lacks: Option<(f64, Choice)>,
    /// What changes are taken from: each is good somewhere.
    pub(super) known: Vec<Choice>,
    random: Random,
    /// The last one, for its memory.
    trial: Trial,
}

impl<'a> Annealing<'a> {
    /// Without any memory: the best is what needs least.
    pub(super) fn new(problem: &'a Problem<'a>) -> Self {
        let moves = |unit: &usize| {
            let unit = &problem.units[*unit];
            unit.repeats || unit.tensors.iter().any(|&tensor| problem.tensors[tensor].leaves)
        };
        Self {
            problem,
            units: (0..problem.units.len()).filter(moves).collect(),
            capacity: 0,
            price: 1.0,
            fits: Vec::new(),
            lacks: None,
            known: Vec::new(),
            random: Random(0x9E37_79B9_7F4A_7C15),
            trial: Trial::default(),
        }
    }

    /// Goes on with another capacity, from what was best for the last one, whose least time (or a large one) it returns.
    pub(super) fn go_on(&mut self, capacity: u64) -> f64 {
        let last_ms = self.fits.first().map_or(2.0 * self.problem.unlimited_ms, |(ms, _)| *ms);
        (self.capacity, self.price) = (capacity, 4.0 * last_ms / capacity as f64);
        let last = std::mem::take(&mut self.fits).into_iter().chain(self.lacks.take());
        self.known.extend(last.map(|(_, choice)| choice));
        for choice in self.known.clone() {
            self.energy(&choice, f64::INFINITY);
        }
        last_ms
    }

    /// Searches from two starts, each so hot, on two threads where there are threads.
    pub(super) fn anneal_both(&mut self, [one, other]: [Choice; 2], hot: [f64; 2]) {
        let trials = (TRIALS.0 / self.units.len().max(1)).clamp(TRIALS.1[0], TRIALS.1[1]);
        let mut beside = self.clone();
        beside.random.0 = !beside.random.0;
        both(|| self.anneal(one, trials, hot[0]), || beside.anneal(other, trials, hot[1]));
        beside.fits.iter().for_each(|(ms, choice)| self.fit(*ms, choice));
        let lacks = [self.lacks.take(), beside.lacks].into_iter().flatten();
        self.lacks = lacks.min_by(|a, b| a.0.total_cmp(&b.0));
    }

    /// What a choice costs, noted if it is among the best; if that is more than `most`, perhaps less than it costs.
    pub(super) fn energy(&mut self, choice: &Choice, most: f64) -> f64 {
        let (problem, capacity) = (self.problem, self.capacity);
        let lacks = |trial: &Trial| {
            // What leaves for the host frees no more than its own size: too much of it is worse than none.
            let host = if trial.host > problem.costs.host.0 { 2 * trial.host } else { 0 };
            trial.peak.saturating_sub(capacity) + host
        };
        let trial = &mut self.trial;
        problem.compute(choice, capacity, most, trial);
        let least = trial.time_ms + self.price * lacks(trial) as f64;
        if least > most {
            return least;
        }
        problem.copy(choice, capacity, trial);
        let lacks = lacks(trial);
        let energy = trial.time_ms + self.price * lacks as f64;
        if self.lacks.as_ref().is_none_or(|(least, _)| energy < *least) {
            self.lacks = Some((energy, choice.clone()));
        }
        if lacks == 0 {
            self.fit(energy, choice);
        }
        energy
    }

    /// Notes a choice that fits, if it is among the fastest.
    fn fit(&mut self, ms: f64, choice: &Choice) {
        let kept = 1 + PLACED / self.problem.units.len().max(1);
        let at = self.fits.partition_point(|(other_ms, _)| *other_ms < ms);
        if at < kept && self.fits.get(at).is_none_or(|(other_ms, _)| *other_ms > ms) {
            self.fits.insert(at, (ms, choice.clone()));
            self.fits.truncate(kept);
        }
    }

    /// Changes a choice at random: for the better always, for the worse ever less, at first so `hot`, in parts of time.
    pub(super) fn anneal(&mut self, mut now: Choice, trials: usize, hot: f64) {
        let mut energy = self.energy(&now, f64::INFINITY);
        let [hot, cold] = [hot, COLD].map(|part| part * energy);
        for trial in 0..if self.units.is_empty() { 0 } else { trials } {
            let heat = hot * (cold / hot).powf(trial as f64 / trials as f64);
            let next = self.neighbour(&now);
            if next == now {
                continue;
            }
            let most = energy - heat * (1.0 - self.random.part()).ln();
            let changed = self.energy(&next, most);
            if changed <= most {
                (now, energy) = (next, changed);
            }
        }
    }

    /// A choice like `now`: one to three neighbours of `units` do something else, two of any place do what the other did,
    /// as what one frees another may need, or a stretch of them does what it does in another known choice, as to compute
    /// again pays for whole chains.
    fn neighbour(&mut self, now: &Choice) -> Choice {
        let (problem, count, mut next) = (self.problem, self.units.len(), now.clone());
        let first = self.random.below(count);
        if !self.known.is_empty() && self.random.part() < 0.5 {
            let len = 1 + (count as f64 * self.random.part().powf(1.5)) as usize;
            let other = &self.known[self.random.below(self.known.len())];
            for &unit in self.units.iter().skip(first).take(len) {
                next.repeated[unit] = other.repeated[unit];
                next.briefly[unit] = other.briefly[unit];
                let tensors = problem.units[unit].tensors.iter();
                tensors.for_each(|&tensor| next.offloaded[tensor] = other.offloaded[tensor]);
            }
            return next;
        }
        if self.random.part() < 0.3 {
            let [one, other] = [first, self.random.below(count)].map(|at| self.units[at]);
            next.set(problem, one, now.state(problem, other));
            next.set(problem, other, now.state(problem, one));
            return next;
        }
        for change in 0..1 + self.random.below(3) {
            let step = if change == 0 { 10 } else { self.random.below(21) };
            let near = (first + step).saturating_sub(10).min(count - 1);
            let is_far = change > 0 && self.random.part() < 0.5;
            let unit = self.units[if is_far { self.random.below(count) } else { near }];
            next.set(problem, unit, self.random.below(STATES));
        }
        next
    }
}

/// Marsaglia's xorshift: the same choices in every run.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn part(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.part() * bound as f64) as usize
    }
}

/// What two searches return, on two threads where there are threads.
pub(super) fn both<T: Send>(one: impl FnOnce() -> T + Send, other: impl FnOnce() -> T) -> [T; 2] {
    if cfg!(target_family = "wasm") {
        return [one(), other()];
    }
    thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        [one.join().unwrap_or_else(|panic| resume_unwind(panic)), other]
    })
}
