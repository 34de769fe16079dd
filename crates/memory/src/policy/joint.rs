//! One plan for workspace, offload and recomputation.
//!
//! Prices ([`Bound`]) say what no plan beats and answer with choices that nearly fit; annealing mends and improves the
//! best of them, each trial carried out with its copies; then buffers are placed, and kernels get what lies free.
//!
//! A search climbs from the smallest capacity to the budget in steps that do not depend on the budget, each from what
//! is known of the one below, and the plan is the fastest of all that was found on the way: more memory makes none of
//! them slower. Where nothing may be offloaded the search comes first, as what it finds for its least memory is near
//! what is best for less with a little offloading. Only AccUDNN's choice for the very budget is not among larger ones'.

use super::anneal::{Annealing, both};
use super::plan::{BelowFloor, Fitting, MemoryPlan};
use super::trial::{Choice, Trial};
use super::{bound::Bound, costs::Costs, price::Prices, problem::Problem};
use crate::{outline::Outline, schedule::Schedule};
use planner::{ARENA_ALIGNMENT, Bytes};

/// A search climbs by this part of what keeping everything takes: one that never offloads, and one that may; at first by
/// so many times less, as most time is won near the floor.
const STEPS: [f64; 2] = [0.02, 0.01];
const NEAR: u64 = 8;
/// Steps of the prices at the first capacity, at each other one, and for the bound.
const PRICES: [usize; 3] = [200, 30, 400];
/// How many times the budget has a bound: one for more memory is one for less, and its prices, which rise sooner near the
/// floor, lead to those for less.
const BOUNDED: [f64; 3] = [1.0, 1.15, 1.0];
/// The heat at first, in parts of the time, of searches from what is known and from answers to prices.
const HEAT: [f64; 2] = [1e-3, 4e-3];
/// How many choices are known at once: to begin with, and at most.
const KNOWN: [usize; 2] = [5, 48];
/// What takes more than so many times the bound is searched on from all that was known to begin with.
const FAR: f64 = 1.02;

/// The fastest iteration that was found whose buffers fit `budget` bytes of the device: every feature map is kept,
/// offloaded or computed again, for the first that wants it or for each, and each kernel has as workspace what is free
/// when it runs. What outlives an iteration ([`ArenaLayout::base`](crate::ArenaLayout::base)) lies beside the budget.
///
/// # Errors
/// [`BelowFloor`]: nothing fits.
pub fn joint(outline: &Outline, costs: &Costs, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
    costs.check(outline);
    let unlimited_ms = costs.unlimited_ms(outline);
    let plain = Fitting::new(outline, costs, Schedule::plain(outline).actions);
    let keeping = match plain.plan(costs.workspaces(|_, _| Bytes::MAX), budget) {
        Ok(keep) => return Ok(MemoryPlan { bound_ms: unlimited_ms.min(keep.planned_ms()), ..keep }),
        Err(below) => below.floor,
    };
    let without_host = Costs { host: Bytes::ZERO, ..costs.clone() };
    let ways = [&without_host, costs].map(|costs| Problem::new(outline, costs));
    let [(alone_floor, alone), (floor, leanest)] = [ways[0].floor(), ways[1].floor()];
    // What offloads most may be placed worse than what offloads less, or nothing.
    let lean = plain.workspaces(Bytes::ZERO, false).err().into_iter();
    let floors = lean.chain([floor.clone(), alone_floor.clone()]);
    let below = floors.min_by_key(|below| below.floor).expect("there are several");
    if budget < below.floor {
        return Err(below);
    }
    let mut without = Search::new(&ways[0]);
    let mut with = (costs.host > Bytes::ZERO).then(|| Search::new(&ways[1]));
    let [step, finer] = STEPS.map(|part| (keeping.0 as f64 * part) as u64);
    let (from, fastest) = without.start((alone_floor.floor, alone), ways[0].all(false, true));
    let plans = both(
        || without.rise(budget, from, step),
        || {
            let search = with.as_mut()?;
            let (from, _) = search.start((floor.floor, leanest), fastest);
            search.rise(budget, from, finer)
        },
    );
    let best = plans.into_iter().flatten().min_by(|a, b| a.planned_ms().total_cmp(&b.planned_ms()));
    let Some(mut plan) = best else { return Err(below) };
    let mut last = with.unwrap_or(without);
    let bounds_ms = BOUNDED.map(|times| {
        last.set_capacity((budget.0 as f64 * times) as u64 / ARENA_ALIGNMENT * ARENA_ALIGNMENT);
        last.bound.rise(&mut last.prices, PRICES[2], |_| plan.planned_ms())
    });
    let bound_ms = bounds_ms.into_iter().fold(f64::NEG_INFINITY, f64::max);
    plan.bound_ms = bound_ms.max(unlimited_ms).min(plan.planned_ms());
    Ok(plan)
}

impl Problem<'_> {
    /// The choice that takes least, and what it takes.
    fn floor(&self) -> (BelowFloor, Choice) {
        let mut leanest = self.all(true, false);
        let host = self.costs.host.0;
        if host == 0 || self.carry_out(&leanest, 0, false).host > host {
            let mut choices = Annealing::new(self);
            choices.known = vec![self.keep(), self.all(false, true)];
            let starts = choices.known.clone();
            starts.into_iter().for_each(|start| choices.anneal(start, 50 * self.units.len(), HEAT[1]));
            leanest = choices.lacks.map_or(leanest, |(_, choice)| choice);
        }
        let actions = self.carry_out(&leanest, 0, false).actions(self);
        let fitting = Fitting::new(self.outline, self.costs, actions);
        (fitting.workspaces(Bytes::ZERO, false).err().unwrap_or_default(), leanest)
    }
}

/// A search for the fastest plan.
struct Search<'a> {
    problem: &'a Problem<'a>,
    bound: Bound<'a>,
    prices: Prices,
    /// The best for the last capacity.
    choices: Annealing<'a>,
    /// The fastest for each capacity, as far as they have no places yet.
    unplaced: Vec<(u64, Choice)>,
    /// All that was placed.
    found: Vec<Found<'a>>,
}

/// A choice in its places.
struct Found<'a> {
    fitting: Fitting<'a>,
    /// The fastest if buffers lay without gaps in the memory that it was found for.
    workspace: Vec<[Bytes; 2]>,
    /// Its time and memory with them.
    ms: f64,
    takes: Bytes,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem<'a>) -> Self {
        let bound = Bound::new(problem);
        let choices = Annealing::new(problem);
        Self { problem, prices: bound.zero(), bound, choices, unplaced: Vec::new(), found: Vec::new() }
    }

    /// Searches for the smallest capacity, though that be above the budget, from the problem's floor and a choice without
    /// offloading. Returns the capacity with the least that has places, and the fastest choice for it.
    fn start(&mut self, (floor, leanest): (Bytes, Choice), repeated: Choice) -> ([Bytes; 2], Choice) {
        let problem = self.problem;
        self.place(&problem.keep(), (0, false), Bytes::ZERO);
        self.place(&leanest, (0, false), Bytes::ZERO);
        let least = problem.carry_out(&leanest, 0, false).peak;
        // As in a chain each unit is made again for all after it, every so many of them are held.
        let (mut briefly, apart) = (problem.all(false, true), problem.units.len().isqrt() + 1);
        for (unit, is_brief) in briefly.briefly.iter_mut().enumerate() {
            *is_brief = briefly.repeated[unit] && unit % apart > 0;
        }
        self.choices.known =
            vec![problem.keep(), problem.all(true, false), repeated, leanest.clone(), briefly];
        self.climb(PRICES[0], least);
        let fastest = self.choices.fits.first().map_or(leanest, |(_, choice)| choice.clone());
        ([Bytes(least), floor], fastest)
    }

    /// Climbs from what [`Search::start`] returned up to `budget`, or to what is as fast as in any memory, and tries
    /// AccUDNN's choices for both ends, too. Returns the fastest plan.
    fn rise(&mut self, budget: Bytes, [least, floor]: [Bytes; 2], step: u64) -> Option<MemoryPlan> {
        let (problem, mut capacity) = (self.problem, least.0);
        while capacity <= budget.0 {
            if capacity > least.0 {
                self.climb(PRICES[1], capacity);
            }
            let fastest_ms = problem.unlimited_ms * (1.0 + 1e-9);
            let fits = self.choices.fits.clone();
            if fits.first().is_some_and(|(ms, _)| *ms <= fastest_ms) {
                for (ms, choice) in &fits {
                    if !self.has(*ms, Bytes(capacity)) {
                        self.place(choice, (capacity, false), Bytes(capacity));
                    }
                }
            } else {
                self.unplaced.extend(fits.into_iter().map(|(_, choice)| (capacity, choice)));
            }
            if self.has(fastest_ms, Bytes(capacity)) {
                break;
            }
            let further = step.min(step / NEAR + (capacity - least.0) / 2);
            capacity += (further / ARENA_ALIGNMENT + 1) * ARENA_ALIGNMENT;
        }
        for within in [floor.min(budget), budget] {
            if let Ok((choice, capacity, _)) = problem.swapped(within) {
                self.place(&choice, (capacity, true), within);
                self.place(&choice, (capacity, false), within);
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

    /// Searches for `capacity`: from the best that is known, and from the best answer to prices after so many steps.
    fn climb(&mut self, steps: usize, capacity: u64) {
        self.set_capacity(capacity);
        let (choices, mut answers) = (&mut self.choices, Vec::new());
        let last_ms = choices.go_on(capacity);
        let bound_ms = self.bound.rise(&mut self.prices, steps, |answer| {
            answers.push((choices.energy(&answer.choice, f64::INFINITY), answer.choice.clone()));
            choices.fits.first().map_or(last_ms, |(ms, _)| *ms)
        });
        answers.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (_, best) = choices.lacks.as_ref().expect("an answer is noted");
        let starts = [best.clone(), answers[0].1.clone()];
        choices.known.extend(answers.into_iter().map(|(_, choice)| choice).take(KNOWN[1] / 8));
        choices.known.drain(KNOWN[0]..choices.known.len().saturating_sub(KNOWN[1]).max(KNOWN[0]));
        choices.anneal_both(starts, HEAT);
        for starts in [[0, 1], [2, 3]] {
            if choices.fits.first().is_some_and(|(ms, _)| *ms <= FAR * bound_ms) {
                break;
            }
            choices.known.extend(choices.fits.iter().map(|(_, choice)| choice.clone()));
            choices.anneal_both(starts.map(|start| choices.known[start].clone()), [HEAT[1]; 2]);
        }
    }

    /// Whether what was placed has a plan for `budget` that takes no more time.
    fn has(&self, ms: f64, budget: Bytes) -> bool {
        self.found.iter().any(|found| found.ms <= ms && found.takes <= budget)
    }

    /// Places a choice for `capacity`, by kernels that are `patient` or not and have the fastest workspaces for `budget`,
    /// within it or wherever it ends.
    fn place(&mut self, choice: &Choice, (capacity, patient): (u64, bool), budget: Bytes) {
        let problem = self.problem;
        let carried = problem.carry_out(choice, capacity, patient);
        if carried.host > problem.costs.host.0 {
            return;
        }
        let fitting = Fitting::new(problem.outline, problem.costs, carried.actions(problem));
        let workspace = fitting.ideal(budget);
        let (ms, takes) = (fitting.time_ms(&workspace), fitting.takes(&workspace, budget));
        self.found.push(Found { fitting, workspace, ms, takes });
    }

    /// The fastest of what was found: as it was placed for less, or with the workspaces of `budget`.
    fn best(&mut self, budget: Bytes) -> Option<MemoryPlan> {
        // What is slower than the fastest even if nothing waits for copies needs no places.
        let mut trial = Trial::default();
        for (capacity, choice) in std::mem::take(&mut self.unplaced).into_iter().rev() {
            self.problem.compute(&choice, budget.0, f64::INFINITY, &mut trial);
            if !self.has(trial.time_ms, budget) {
                self.place(&choice, (capacity, false), Bytes(capacity));
            }
        }
        let mut best: Option<(f64, &Fitting<'_>, Vec<[Bytes; 2]>)> = None;
        for Found { fitting, workspace, ms, takes } in self.found.iter().rev() {
            let least_ms = best.as_ref().map_or(f64::INFINITY, |best| best.0);
            let before = (*takes <= budget && *ms < least_ms).then(|| (*ms, fitting, workspace.clone()));
            let hopes = fitting.time_ms(&fitting.ideal(budget)) < least_ms;
            let now = hopes.then(|| fitting.workspaces(budget, false).ok()).flatten();
            let now = now.map(|workspace| (fitting.time_ms(&workspace), fitting, workspace));
            best = [before, now, best].into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0));
        }
        best.map(|(_, fitting, workspace)| fitting.plan(workspace, budget).expect("it was placed"))
    }
}

#[cfg(test)]
#[path = "../../tests/nets/mod.rs"]
mod nets;

#[cfg(test)]
mod tests {
    use super::super::trial::STATES;
    use super::{nets::random, *};
    use crate::action::Action;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::collections::HashSet;

    /// Every choice for every unit.
    fn all(problem: &Problem<'_>) -> impl Iterator<Item = Choice> {
        let units: Vec<usize> = (0..problem.units.len()).collect();
        (0..STATES.pow(units.len() as u32)).map(move |mut code| {
            let mut choice = problem.keep();
            for &unit in &units {
                choice.set(problem, unit, code % STATES);
                code /= STATES;
            }
            choice
        })
    }

    #[test]
    fn what_is_computed_again_takes_the_memory_and_time_of_its_actions() {
        let mut often = 0;
        for seed in 0..10 {
            let net = random(seed, 12);
            let problem = Problem::new(&net.outline, &net.costs);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            for capacity in [1 << 22, 1 << 24, 1 << 26, 1 << 40].repeat(25) {
                let mut choice = problem.keep();
                for unit in 0..problem.units.len() {
                    choice.set(&problem, unit, [0, 2, 3][rng.random_range(0..3)]);
                }
                let trial = problem.carry_out(&choice, capacity, false);
                let actions = trial.actions(&problem);
                often += usize::from((1..actions.len()).any(|at| {
                    matches!(actions[at], Action::Recompute(_)) && actions[..at].contains(&actions[at])
                }));
                let fitting = Fitting::new(problem.outline, problem.costs, actions);
                let plan = fitting.plan(fitting.ideal(Bytes(capacity)), Bytes::MAX).unwrap();
                assert_eq!(
                    trial.peak,
                    plan.timeline.alive.iter().max().unwrap().0,
                    "seed {seed}, {capacity}"
                );
                let [ours, theirs] = [trial.time_ms, plan.planned_ms()];
                assert!((ours - theirs).abs() <= 1e-9 * theirs, "seed {seed}, {capacity}: {ours}, {theirs}");
            }
        }
        assert!(often > 500, "in {often} of 1000 something is computed again more than once");
    }

    /// In how many of three budgets for the net of this seed the plan is the best of all choices.
    fn fastest_plans(seed: u64) -> usize {
        let net = random(seed, 4);
        let (outline, costs) = (&net.outline, &net.costs);
        let problem = Problem::new(outline, costs);
        let least = problem.floor().0.floor;
        let most = joint(outline, costs, Bytes(1 << 40)).unwrap().device;
        let is_fastest = |part: &f64| {
            let budget = Bytes(least.0 + ((most.0 - least.0) as f64 * part) as u64);
            let capacity = budget.0 / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
            // What is too much in sum cannot be placed, and many choices come to the same.
            let mut tried = HashSet::new();
            let mut every = Search::new(&problem);
            for choice in all(&problem) {
                let trial = problem.carry_out(&choice, capacity, false);
                if trial.peak <= capacity && tried.insert(trial.actions(&problem)) {
                    every.place(&choice, (capacity, false), budget);
                }
            }
            let best_ms = every.best(budget).map_or(f64::INFINITY, |plan| plan.planned_ms());
            let plan = joint(outline, costs, budget).unwrap();
            let (planned_ms, bound_ms) = (plan.planned_ms(), plan.bound_ms);
            assert!(plan.device <= budget, "seed {seed}, part {part}: {} of {budget}", plan.device);
            assert!(bound_ms <= best_ms + 1e-9, "seed {seed}, part {part}: bound {bound_ms}, best {best_ms}");
            planned_ms <= best_ms * (1.0 + 1e-9)
        };
        [0.05, 0.3, 0.6].iter().filter(|part| is_fastest(part)).count()
    }

    #[test]
    fn on_small_nets_it_is_as_fast_as_the_best_of_all_choices_and_never_faster_than_the_bound() {
        let seeds: Vec<_> = (0..8).map(|seed| std::thread::spawn(move || fastest_plans(seed))).collect();
        let fastest: usize = seeds.into_iter().map(|fastest| fastest.join().unwrap()).sum();
        // Near the floor a search by chance need not find the one placing that fits.
        assert!(10 * fastest >= 8 * 24, "the fastest plan in {fastest} of 24");
    }
}
