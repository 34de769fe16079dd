//! One plan for workspace, offload and recomputation.
//!
//! Prices ([`Bound`]) say what no plan beats and answer with choices that nearly fit; annealing mends and improves the
//! best of them, each trial carried out with its copies; then buffers are placed, and kernels get what lies free at
//! their steps.
//!
//! A search climbs from the smallest capacity to the budget in steps that do not depend on the budget, each from what
//! is known of the one below, and the plan is the fastest of all that was placed on the way: more memory makes none of
//! them slower. Where nothing may be offloaded the search comes first, as what it finds for its least memory is near
//! what is best for less with a little offloading. Only AccUDNN's choice for the very budget is not among those of
//! larger ones, which have their own.

use super::plan::{BelowFloor, Fitting, MemoryPlan};
use super::trial::{Choice, Trial};
use super::{bound::Bound, costs::Costs, price::Prices, problem::Problem};
use crate::{outline::Outline, schedule::Schedule};
use planner::{ARENA_ALIGNMENT, Bytes};
use std::{panic::resume_unwind, thread};

/// A search climbs by this part of what keeping everything takes: one that never offloads, and one that may.
const STEPS: [f64; 2] = [0.02, 0.01];
/// Steps of the prices at the first capacity, at each other one, and for the bound.
const PRICES: [usize; 3] = [200, 30, 800];
/// So many units are changed in a search, within limits of its trials, and so many are placed at each capacity.
const TRIALS: (usize, [usize; 2]) = (200_000, [450, 6000]);
const PLACED: usize = 400;
/// The heat of a search in parts of the time: at its beginning from what is known and from prices, and at its end.
const HEAT: [f64; 3] = [1e-3, 4e-3, 1e-5];
/// How many choices are known at once: to begin with, and at most.
const KNOWN: [usize; 2] = [4, 48];

/// The fastest iteration that was found whose buffers fit `budget` bytes of the device: every feature map is kept,
/// offloaded or computed again, and each kernel has as workspace what is free when it runs. What outlives an iteration
/// ([`ArenaLayout::base`](crate::ArenaLayout::base)) lies beside the budget.
///
/// # Errors
/// [`BelowFloor`]: nothing fits.
pub fn joint(outline: &Outline, costs: &Costs, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
    let unlimited_ms = costs.unlimited_ms(outline);
    let plain = Fitting::new(outline, costs, Schedule::plain(outline).actions);
    let keep = plain.plan(costs.workspaces(|_, _| Bytes::MAX), Bytes::MAX)?;
    if keep.device <= budget {
        return Ok(MemoryPlan { bound_ms: unlimited_ms.min(keep.planned_ms()), ..keep });
    }
    let without_host = Costs { host: Bytes::ZERO, ..costs.clone() };
    let ways = [&without_host, costs].map(|costs| Problem::new(outline, costs));
    let mut without = Search::new(&ways[0]);
    let mut with = (costs.host > Bytes::ZERO).then(|| Search::new(&ways[1]));
    let [step, finer] = STEPS.map(|part| (keep.device.0 as f64 * part) as u64);
    let (from, fastest) = without.start(budget, ways[0].all(false, true));
    let plans = both(
        || without.rise(budget, from, step),
        || {
            let search = with.as_mut()?;
            let (from, _) = search.start(budget, fastest);
            search.rise(budget, from, finer)
        },
    );
    let best = plans.into_iter().flatten().min_by(|a, b| a.planned_ms().total_cmp(&b.planned_ms()));
    let Some(mut plan) = best else { return Err(floor(outline, costs)) };
    let mut last = with.unwrap_or(without);
    last.set_capacity(budget.0 / ARENA_ALIGNMENT * ARENA_ALIGNMENT);
    let bound_ms = last.bound.rise(&mut last.prices, PRICES[2], |_| plan.planned_ms());
    plan.bound_ms = bound_ms.max(unlimited_ms).min(plan.planned_ms());
    Ok(plan)
}

/// What two searches return, on two threads where there are threads.
fn both<T: Send>(one: impl FnOnce() -> T + Send, other: impl FnOnce() -> T) -> [T; 2] {
    if cfg!(target_family = "wasm") {
        return [one(), other()];
    }
    thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        [one.join().unwrap_or_else(|panic| resume_unwind(panic)), other]
    })
}

/// The smallest budget in which [`joint`] has a plan, and the layer that sets it.
pub fn floor(outline: &Outline, costs: &Costs) -> BelowFloor {
    Problem::new(outline, costs).floor().0
}

impl Problem<'_> {
    /// The choice that takes least, and what it takes.
    fn floor(&self) -> (BelowFloor, Choice) {
        let mut leanest = self.all(true, false);
        let host = self.costs.host.0;
        if host == 0 || self.carry_out(&leanest, 0, false).host > host {
            let mut search = Search::new(self);
            search.known = vec![self.keep(), self.all(false, true)];
            let starts = search.known.clone();
            starts.into_iter().for_each(|start| search.anneal(start, 50 * self.units.len(), HEAT[1]));
            leanest = search.lacks.map_or(leanest, |(_, choice)| choice);
        }
        let fitting =
            Fitting::new(self.outline, self.costs, self.carry_out(&leanest, 0, false).actions(self));
        (fitting.workspaces(Bytes::ZERO, false).err().unwrap_or_default(), leanest)
    }
}

/// A search for the fastest choices.
struct Search<'a> {
    problem: &'a Problem<'a>,
    /// The units for which there is a choice.
    units: Vec<usize>,
    bound: Bound<'a>,
    prices: Prices,
    /// What a byte too much costs, in milliseconds.
    price: f64,
    /// The fastest choices that fit, with their times.
    fits: Vec<(f64, Choice)>,
    /// The best where bytes too much are paid for.
    lacks: Option<(f64, Choice)>,
    /// All that was placed, with its time (infinite if it does not fit) and workspaces in the memory it was found for.
    found: Vec<(f64, Fitting<'a>, Vec<[Bytes; 2]>)>,
    /// What changes are taken from: each is good somewhere.
    known: Vec<Choice>,
    random: Random,
    /// The last one, for its memory.
    trial: Trial,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem<'a>) -> Self {
        let bound = Bound::new(problem);
        let moves = |unit: &usize| {
            let unit = &problem.units[*unit];
            unit.repeats || unit.tensors.iter().any(|&tensor| problem.tensors[tensor].leaves)
        };
        Self {
            problem,
            units: (0..problem.units.len()).filter(moves).collect(),
            prices: bound.zero(),
            bound,
            price: 1.0,
            fits: Vec::new(),
            lacks: None,
            found: Vec::new(),
            known: Vec::new(),
            random: Random(0x9E37_79B9_7F4A_7C15),
            trial: Trial::default(),
        }
    }

    /// Searches for the smallest capacity, though that be above `budget`, from a choice without offloading. Returns the
    /// capacity with the least that has places, and the fastest choice for it.
    fn start(&mut self, budget: Bytes, repeated: Choice) -> ([Bytes; 2], Choice) {
        let problem = self.problem;
        let (floor, leanest) = problem.floor();
        self.place(&problem.keep(), (0, false), Bytes::ZERO);
        self.place(&leanest, (0, false), Bytes::ZERO);
        let least = problem.carry_out(&leanest, 0, false).peak;
        self.known = vec![problem.keep(), problem.all(true, false), repeated, leanest.clone()];
        self.climb(PRICES[0], least, budget.0);
        let fastest = self.fits.first().map_or(leanest, |(_, choice)| choice.clone());
        ([Bytes(least), floor.floor], fastest)
    }

    /// Climbs from what [`Search::start`] returned up to `budget`, or to what is as fast as in any memory, and tries
    /// AccUDNN's choices for both ends, too. Returns the fastest plan.
    fn rise(&mut self, budget: Bytes, [least, floor]: [Bytes; 2], step: u64) -> Option<MemoryPlan> {
        let (problem, aligned) = (self.problem, (step / ARENA_ALIGNMENT + 1) * ARENA_ALIGNMENT);
        for capacity in (least.0..=budget.0).step_by(aligned as usize) {
            if capacity > least.0 {
                self.climb(PRICES[1], capacity, budget.0);
            }
            self.search_places(capacity, budget.0);
            if self.found.iter().any(|(ms, ..)| *ms <= problem.unlimited_ms * (1.0 + 1e-9)) {
                break;
            }
        }
        for within in [floor.min(budget), budget] {
            if let Ok((choice, capacity, _)) = problem.swapped(within) {
                for patient in [true, false] {
                    self.place(&choice, (capacity, patient), within);
                }
            }
        }
        self.best(budget)
    }

    /// Goes on to prices for another capacity: those of a byte stay.
    fn set_capacity(&mut self, capacity: u64) {
        let times = capacity as f64 / self.bound.capacity as f64;
        self.bound.capacity = capacity;
        self.prices.memory.iter_mut().for_each(|price| *price *= times);
    }

    /// Searches for `capacity`: from the best that is known, and from the best answer to prices after so many steps. What
    /// is found is placed if it is within `budget`.
    fn climb(&mut self, steps: usize, capacity: u64, budget: u64) {
        let known_ms = self.fits.first().map_or(2.0 * self.problem.unlimited_ms, |(ms, _)| *ms);
        self.set_capacity(capacity);
        self.price = 4.0 * known_ms / capacity as f64;
        let last = std::mem::take(&mut self.fits).into_iter().chain(self.lacks.take());
        self.known.extend(last.map(|(_, choice)| choice));
        for choice in self.known.clone() {
            self.energy(&choice, f64::INFINITY);
        }
        let (bound, mut prices, mut answers) = (self.bound.clone(), self.prices.clone(), Vec::new());
        bound.rise(&mut prices, steps, |answer| {
            answers.push((self.energy(&answer.choice, f64::INFINITY), answer.choice.clone()));
            self.fits.first().map_or(known_ms, |(ms, _)| *ms)
        });
        self.prices = prices;
        answers.sort_by(|a, b| a.0.total_cmp(&b.0));
        let answers: Vec<Choice> = answers.into_iter().map(|(_, choice)| choice).take(KNOWN[1] / 8).collect();
        let starts: Vec<Choice> =
            self.lacks.iter().map(|(_, best)| best).chain(answers.first()).cloned().collect();
        self.known.extend(answers);
        self.known.drain(KNOWN[0]..self.known.len().saturating_sub(KNOWN[1]).max(KNOWN[0]));
        starts.into_iter().zip(HEAT).for_each(|(start, hot)| self.anneal(start, self.trials(), hot));
        self.place_fastest(capacity, budget);
    }

    /// How many changes a search tries.
    fn trials(&self) -> usize {
        (TRIALS.0 / self.units.len().max(1)).clamp(TRIALS.1[0], TRIALS.1[1])
    }

    /// Near the floor what fits in sum may have no places: what searches from the first known choices find may.
    fn search_places(&mut self, capacity: u64, budget: u64) {
        let fits = self.fits.clone();
        for start in 0..KNOWN[0] {
            if capacity > budget || self.found.iter().any(|(ms, ..)| ms.is_finite()) {
                break;
            }
            self.known.extend(std::mem::take(&mut self.fits).into_iter().map(|(_, choice)| choice));
            self.anneal(self.known[start].clone(), self.trials(), HEAT[1]);
            self.place_fastest(capacity, budget);
        }
        self.fits = fits;
    }

    /// Places the fastest choices for `capacity`, if that is within `budget`, as far as nothing is known to be faster.
    fn place_fastest(&mut self, capacity: u64, budget: u64) {
        for (ms, choice) in &self.fits.clone() {
            if capacity <= budget && self.found.iter().all(|(other_ms, ..)| ms < other_ms) {
                self.place(choice, (capacity, false), Bytes(capacity));
            }
        }
    }

    /// Places a choice that was found for `capacity`, by kernels that are `patient` or not, within `budget`, or
    /// wherever that ends.
    fn place(&mut self, choice: &Choice, (capacity, patient): (u64, bool), budget: Bytes) {
        let problem = self.problem;
        let carried = problem.carry_out(choice, capacity, patient);
        if carried.host > problem.costs.host.0 {
            return;
        }
        let fitting = Fitting::new(problem.outline, problem.costs, carried.actions(problem));
        let workspace = (budget > Bytes::ZERO).then(|| fitting.workspaces(budget, true).ok()).flatten();
        let ms = workspace.as_ref().map_or(f64::INFINITY, |workspace| fitting.time_ms(workspace));
        self.found.push((ms, fitting, workspace.unwrap_or_default()));
    }

    /// The fastest of what was found: as it was placed for less, or with the workspaces of `budget`.
    fn best(&self, budget: Bytes) -> Option<MemoryPlan> {
        let mut best: Option<(f64, &Fitting<'_>, Vec<[Bytes; 2]>)> = None;
        for (ms, fitting, workspace) in self.found.iter().rev() {
            let least_ms = best.as_ref().map_or(f64::INFINITY, |best| best.0);
            let before = (*ms < least_ms).then(|| (*ms, fitting, workspace.clone()));
            let hopes = fitting.time_ms(&fitting.ideal(budget)) < least_ms;
            let now = hopes.then(|| fitting.workspaces(budget, false).ok()).flatten();
            let now = now.map(|workspace| (fitting.time_ms(&workspace), fitting, workspace));
            best = [before, now, best].into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0));
        }
        best.map(|(_, fitting, workspace)| fitting.plan(workspace, budget).expect("it was placed"))
    }

    /// What a choice costs, noted if it is among the best; if that is more than `most`, perhaps less than it costs.
    fn energy(&mut self, choice: &Choice, most: f64) -> f64 {
        let (problem, capacity) = (self.problem, self.bound.capacity);
        let lacks = |trial: &Trial| {
            // What leaves for the host frees no more than its own size.
            trial.peak.saturating_sub(capacity) + 2 * trial.host.saturating_sub(problem.costs.host.0)
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
        let kept = 1 + PLACED / problem.units.len().max(1);
        let at = self.fits.partition_point(|(ms, _)| *ms < energy);
        if lacks == 0 && at < kept && self.fits.get(at).is_none_or(|(ms, _)| *ms > energy) {
            self.fits.insert(at, (energy, choice.clone()));
            self.fits.truncate(kept);
        }
        energy
    }

    /// Changes a choice at random: for the better always, for the worse ever less.
    fn anneal(&mut self, mut now: Choice, trials: usize, hot: f64) {
        let mut energy = self.energy(&now, f64::INFINITY);
        let [hot, cold] = [hot, HEAT[2]].map(|part| part * energy);
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

    /// A choice like `now`: one to three neighbours of `units` do something else, or a stretch of them does what it
    /// does in another known choice, as to compute again pays for whole chains.
    fn neighbour(&mut self, now: &Choice) -> Choice {
        let (problem, count, mut next) = (self.problem, self.units.len(), now.clone());
        let first = self.random.below(count);
        if !self.known.is_empty() && self.random.part() < 0.5 {
            let len = 1 + (count as f64 * self.random.part().powf(1.5)) as usize;
            let other = &self.known[self.random.below(self.known.len())];
            for &unit in self.units.iter().skip(first).take(len) {
                next.repeated[unit] = other.repeated[unit];
                let tensors = problem.units[unit].tensors.iter();
                tensors.for_each(|&tensor| next.offloaded[tensor] = other.offloaded[tensor]);
            }
            return next;
        }
        for change in 0..1 + self.random.below(3) {
            let step = if change == 0 { 10 } else { self.random.below(21) };
            let near = (first + step).saturating_sub(10).min(count - 1);
            let is_far = change > 0 && self.random.part() < 0.5;
            let unit = self.units[if is_far { self.random.below(count) } else { near }];
            next.set(problem, unit, self.random.below(3));
        }
        next
    }
}

impl Choice {
    /// Lets a unit be kept (0), offloaded (1) or computed again (2).
    fn set(&mut self, problem: &Problem<'_>, unit: usize, state: usize) {
        self.repeated[unit] = problem.units[unit].repeats && state == 2;
        let tensors = problem.units[unit].tensors.iter();
        tensors.for_each(|&one| self.offloaded[one] = state == 1 && problem.tensors[one].leaves);
    }
}

/// Marsaglia's xorshift: the same choices in every run.
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

#[cfg(test)]
#[path = "../../tests/nets/mod.rs"]
mod nets;

#[cfg(test)]
mod tests {
    use super::{nets::random, *};

    /// Every choice for every unit: kept, offloaded or computed again.
    fn all(problem: &Problem<'_>) -> impl Iterator<Item = Choice> {
        let units: Vec<usize> = (0..problem.units.len()).collect();
        (0..3usize.pow(units.len() as u32)).map(move |mut code| {
            let mut choice = problem.keep();
            for &unit in &units {
                choice.set(problem, unit, code % 3);
                code /= 3;
            }
            choice
        })
    }

    #[test]
    fn on_small_nets_it_is_as_fast_as_the_best_of_all_choices_and_never_faster_than_the_bound() {
        let (mut checked, mut fastest) = (0, 0);
        for seed in 0..8 {
            let net = random(seed, 4);
            let (outline, costs) = (&net.outline, &net.costs);
            let problem = Problem::new(outline, costs);
            let least = floor(outline, costs).floor;
            let most = joint(outline, costs, Bytes(1 << 40)).unwrap().device;
            for part in [0.05, 0.3, 0.6] {
                let budget = Bytes(least.0 + ((most.0 - least.0) as f64 * part) as u64);
                let capacity = budget.0 / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
                // What is too much in sum cannot be placed.
                let fitting = all(&problem)
                    .filter(|choice| problem.carry_out(choice, capacity, false).peak <= capacity);
                let mut every = Search::new(&problem);
                fitting.for_each(|choice| every.place(&choice, (capacity, false), budget));
                let best_ms = every.best(budget).map_or(f64::INFINITY, |plan| plan.planned_ms());
                let plan = joint(outline, costs, budget).unwrap();
                let (planned_ms, bound_ms) = (plan.planned_ms(), plan.bound_ms);
                assert!(plan.device <= budget, "seed {seed}, part {part}: {} of {budget}", plan.device);
                assert!(
                    bound_ms <= best_ms + 1e-9,
                    "seed {seed}, part {part}: bound {bound_ms}, best {best_ms}"
                );
                checked += 1;
                fastest += usize::from(planned_ms <= best_ms * (1.0 + 1e-9));
            }
        }
        // Near the floor a search by chance need not find the one placing that fits.
        assert!(10 * fastest >= 8 * checked, "the fastest plan in {fastest} of {checked}");
    }
}
