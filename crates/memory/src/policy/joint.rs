//! One plan for workspace, offload and recomputation.
//!
//! Prices ([`Bound`]) say what no plan beats and answer with choices that nearly fit; annealing mends and improves the best
//! of them, each trial carried out with its copies; then buffers are placed, and kernels get what lies free at their steps.
//!
//! The search climbs from the smallest capacity to the budget in steps that do not depend on the budget, each from what it
//! knows of the step below, and the plan is the fastest of all that it has placed on its way. With a larger budget it only
//! climbs further: so more memory never makes a plan slower.

use super::{
    accudnn::accudnn,
    bound::Bound,
    costs::Costs,
    plan::{BelowFloor, Fitting, MemoryPlan},
    price::Prices,
    problem::Problem,
    trial::{Choice, Trial},
};
use crate::outline::Outline;
use planner::{ARENA_ALIGNMENT, Bytes};

/// Capacities differ by this part of what keeping everything takes.
const STEP: f64 = 0.01;
/// Steps of the prices at the first capacity, at each other one, and for the bound.
const PRICES: [usize; 3] = [200, 60, 500];
/// Trials of each search for each unit of a net, and the least and the most of them.
const TRIALS: (usize, usize, usize) = (8, 300, 1200);
/// So many units are placed at each capacity, in as many choices as that makes, but in one at least.
const PLACED: usize = 400;
/// The heat of a search at its beginning and its end, in parts of the time.
const HEAT: [f64; 2] = [1e-3, 1e-5];
/// What a unit may be in a search: kept (0), offloaded (1) or computed again (2).
const ANY: [usize; 3] = [0, 1, 2];
const ONE_WAY: [[usize; 3]; 2] = [[0, 1, 1], [0, 2, 2]];
/// How many choices are known at once.
const KNOWN: usize = 64;

/// The fastest iteration that was found whose buffers fit `budget` bytes of the device: every feature map is kept,
/// offloaded or computed again, and each kernel has as workspace what is free when it runs. What outlives an iteration
/// ([`ArenaLayout::base`](crate::ArenaLayout::base)) lies beside the budget.
///
/// # Errors
/// [`BelowFloor`]: nothing fits.
pub fn joint(outline: &Outline, costs: &Costs, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
    let problem = Problem::new(outline, costs);
    let unlimited_ms = costs.unlimited_ms(outline);
    let mut search = Search::new(&problem);
    search.place(&problem.keep(), u64::MAX);
    let most = search.found[0].device.0;
    if let Some(plan) = search.best(budget).filter(|plan| plan.planned_ms() <= unlimited_ms * (1.0 + 1e-9)) {
        return Ok(MemoryPlan { bound_ms: unlimited_ms.min(plan.planned_ms()), ..plan });
    }
    let (floor, leanest) = problem.floor();
    let least = problem.carry_out(&leanest, 0).peak;
    search.place(&leanest, 0);
    search.known = vec![problem.keep(), problem.all(true, false), problem.all(false, true), leanest];
    let step = (most as f64 * STEP) as u64 / ARENA_ALIGNMENT + 1;
    let capacities = (least..=budget.0).step_by((step * ARENA_ALIGNMENT) as usize);
    capacities.filter(|_| floor.floor <= budget).for_each(|capacity| search.climb(capacity));
    let swapped = accudnn(outline, costs, budget).ok().filter(|plan| plan.host <= costs.host);
    let known = search.best(budget).into_iter().chain(swapped);
    let Some(mut plan) = known.min_by(|a, b| a.planned_ms().total_cmp(&b.planned_ms())) else {
        return Err(floor);
    };
    search.set_capacity(budget.0 / ARENA_ALIGNMENT * ARENA_ALIGNMENT);
    let Search { bound, mut prices, .. } = search;
    let bound_ms = bound.rise(&mut prices, PRICES[2], |_| plan.planned_ms());
    plan.bound_ms = bound_ms.max(unlimited_ms).min(plan.planned_ms());
    Ok(plan)
}

/// The smallest budget in which [`joint`] has a plan, and the layer that sets it.
pub fn floor(outline: &Outline, costs: &Costs) -> BelowFloor {
    Problem::new(outline, costs).floor().0
}

impl Problem<'_> {
    /// The choice that takes least, and what it takes.
    fn floor(&self) -> (BelowFloor, Choice) {
        let mut leanest = self.all(true, false);
        if self.carry_out(&leanest, 0).host > self.costs.host.0 {
            let mut search = Search::new(self);
            search.anneal(self.all(false, true), ANY, 100 * self.units.len());
            leanest = search.lacks.map_or(leanest, |(_, choice)| choice);
        }
        let fitting = Fitting::new(self.outline, self.costs, self.carry_out(&leanest, 0).actions(self));
        let takes = fitting.takes(&self.costs.workspaces(|_, _| Bytes::ZERO));
        let beside = fitting.beside(Bytes::ZERO).err().unwrap_or_default();
        (BelowFloor { floor: beside.floor.min(takes), ..beside }, leanest)
    }
}

/// Actions with workspaces.
struct Found<'a> {
    fitting: Fitting<'a>,
    workspace: Vec<[Bytes; 2]>,
    /// What it takes, and how long.
    device: Bytes,
    ms: f64,
    /// How long with any workspaces.
    least_ms: f64,
}

/// A search for the fastest choices.
struct Search<'a> {
    problem: &'a Problem<'a>,
    bound: Bound<'a>,
    prices: Prices,
    capacity: u64,
    /// What a byte too much costs, in milliseconds.
    price: f64,
    /// The fastest choice that fits, with its time.
    fits: Option<(f64, Choice)>,
    /// The best where bytes too much are paid for.
    lacks: Option<(f64, Choice)>,
    /// Those that fitted and were faster than all before, at this capacity.
    better: Vec<Choice>,
    /// All that was placed.
    found: Vec<Found<'a>>,
    /// What changes are taken from: each is good somewhere.
    known: Vec<Choice>,
    /// The best that does without recomputation, and without copies.
    one_way: [Choice; 2],
    random: Random,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem<'a>) -> Self {
        let bound = Bound::new(problem, 1);
        Self {
            problem,
            prices: bound.zero(),
            bound,
            capacity: 0,
            price: 1.0,
            fits: None,
            lacks: None,
            better: Vec::new(),
            found: Vec::new(),
            known: Vec::new(),
            one_way: [problem.all(true, false), problem.all(false, true)],
            random: Random(0x9E37_79B9_7F4A_7C15),
        }
    }

    /// Goes on to prices for another capacity: those of a byte stay.
    fn set_capacity(&mut self, capacity: u64) {
        let times = capacity as f64 / self.bound.scale.capacity as f64;
        (self.capacity, self.bound.scale.capacity) = (capacity, capacity);
        self.prices.memory.iter_mut().for_each(|price| *price *= times);
    }

    /// Searches at another capacity: from the best that is known, and from the best answer to prices there.
    fn climb(&mut self, capacity: u64) {
        let rounds = if self.capacity == 0 { PRICES[0] } else { PRICES[1] };
        let known_ms = self.fits.as_ref().map_or(2.0 * self.bound.scale.whole_ms, |(ms, _)| *ms);
        self.set_capacity(capacity);
        self.price = 8.0 * known_ms / capacity as f64;
        let last = [self.fits.take(), self.lacks.take()];
        self.known.extend(last.into_iter().flatten().map(|(_, choice)| choice));
        self.known.push(self.problem.pin(capacity));
        for choice in self.known.clone() {
            self.energy(&choice);
        }
        let mut starts: Vec<Choice> = self.lacks.iter().map(|(_, choice)| choice.clone()).collect();
        let (bound, mut prices, mut answers) = (self.bound.clone(), self.prices.clone(), Vec::new());
        bound.rise(&mut prices, rounds, |answer| {
            answers.push((self.energy(&answer.choice), answer.choice.clone()));
            self.fits.as_ref().map_or(known_ms, |(ms, _)| *ms)
        });
        self.prices = prices;
        answers.sort_by(|a, b| a.0.total_cmp(&b.0));
        starts.extend(answers.first().map(|(_, choice)| choice.clone()));
        self.known.extend(answers.into_iter().map(|(_, choice)| choice).take(KNOWN / 8));
        self.known.drain(..self.known.len().saturating_sub(KNOWN));
        let trials = (TRIALS.0 * self.problem.units.len()).clamp(TRIALS.1, TRIALS.2);
        for (index, states) in ONE_WAY.into_iter().enumerate() {
            self.one_way[index] = self.anneal(self.one_way[index].clone(), states, trials);
        }
        starts.into_iter().for_each(|start| drop(self.anneal(start, ANY, trials)));
        let placed = std::mem::take(&mut self.better).into_iter().rev();
        let placed = placed.take(1 + PLACED / self.problem.units.len().max(1));
        placed.for_each(|choice| self.place(&choice, capacity));
    }

    /// Places a choice that was found for `capacity`, wherever that ends.
    fn place(&mut self, choice: &Choice, capacity: u64) {
        let problem = self.problem;
        let trial = problem.carry_out(choice, capacity);
        let most = problem.costs.workspaces(|node, pass| trial.limits[node][pass]);
        let fitting = Fitting::new(problem.outline, problem.costs, trial.actions(problem));
        let least_ms = fitting.time_ms(&problem.costs.workspaces(|_, _| Bytes::MAX));
        let within = Bytes(capacity);
        let ways = [fitting.beside(within).ok(), fitting.among(&most, within)];
        let timed = ways.into_iter().flatten().map(|workspace| (fitting.time_ms(&workspace), workspace));
        let (ms, workspace) =
            timed.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_else(|| (fitting.time_ms(&most), most));
        let device = fitting.takes(&workspace);
        self.found.push(Found { fitting, workspace, device, ms, least_ms });
    }

    /// The fastest of what was found, within `budget`.
    fn best(&self, budget: Bytes) -> Option<MemoryPlan> {
        let mut found: Vec<&Found> = self.found.iter().collect();
        found.sort_by(|a, b| a.least_ms.total_cmp(&b.least_ms));
        let mut best: Option<(f64, &Found, Vec<[Bytes; 2]>)> = None;
        for one in found {
            if best.as_ref().is_some_and(|best| best.0 <= one.least_ms) {
                break;
            }
            let known = (one.device <= budget).then(|| (one.ms, one, one.workspace.clone()));
            let beside = one
                .fitting
                .beside(budget)
                .ok()
                .map(|workspace| (one.fitting.time_ms(&workspace), one, workspace));
            best = best.into_iter().chain(known).chain(beside).min_by(|a, b| a.0.total_cmp(&b.0));
        }
        best.map(|(_, one, workspace)| one.fitting.plan(workspace, budget).expect("it was placed"))
    }

    /// What a choice costs, noted if there was no better one.
    fn energy(&mut self, choice: &Choice) -> f64 {
        let Trial { time_ms, peak, host, .. } = self.problem.carry_out(choice, self.capacity);
        let lacks = peak.saturating_sub(self.capacity) + host.saturating_sub(self.problem.costs.host.0);
        let energy = time_ms + self.price * lacks as f64;
        let is_better = |best: &Option<(f64, Choice)>| best.as_ref().is_none_or(|(least, _)| energy < *least);
        if is_better(&self.lacks) {
            self.lacks = Some((energy, choice.clone()));
        }
        if lacks == 0 && is_better(&self.fits) {
            self.fits = Some((energy, choice.clone()));
            self.better.push(choice.clone());
        }
        energy
    }

    /// Changes a choice at random: for the better always, for the worse ever less. Returns the best.
    fn anneal(&mut self, mut now: Choice, states: [usize; 3], trials: usize) -> Choice {
        let problem = self.problem;
        let moves = |unit: &usize| {
            let unit = &problem.units[*unit];
            unit.repeats || unit.tensors.iter().any(|&tensor| problem.tensors[tensor].leaves)
        };
        let units: Vec<usize> = (0..problem.units.len()).filter(moves).collect();
        let mut energy = self.energy(&now);
        let mut best = (energy, now.clone());
        let [hot, cold] = HEAT.map(|part| part * energy);
        for trial in 0..if units.is_empty() { 0 } else { trials } {
            let heat = hot * (cold / hot).powf(trial as f64 / trials as f64);
            let next = self.neighbour(&now, states, &units);
            let changed = self.energy(&next);
            if changed <= energy || self.random.part() < ((energy - changed) / heat).exp() {
                (now, energy) = (next, changed);
                best = if energy < best.0 { (energy, now.clone()) } else { best };
            }
        }
        best.1
    }

    /// A choice like `now`: one to three neighbours of `units` do something else, or a stretch of them does what it does in
    /// another known choice, as to compute again pays for whole chains.
    fn neighbour(&mut self, now: &Choice, states: [usize; 3], units: &[usize]) -> Choice {
        let (problem, mut next) = (self.problem, now.clone());
        let first = self.random.below(units.len());
        if states == ANY && !self.known.is_empty() && self.random.part() < 0.5 {
            let len = 1 + (units.len() as f64 * self.random.part().powi(3)) as usize;
            let other = &self.known[self.random.below(self.known.len())];
            for &unit in units.iter().skip(first).take(len) {
                next.repeated[unit] = other.repeated[unit];
                let tensors = problem.units[unit].tensors.iter();
                tensors.for_each(|&tensor| next.offloaded[tensor] = other.offloaded[tensor]);
            }
            return next;
        }
        for change in 0..1 + self.random.below(3) {
            let step = if change == 0 { 10 } else { self.random.below(21) };
            let near = (first + step).saturating_sub(10).min(units.len() - 1);
            let is_far = change > 0 && self.random.part() < 0.5;
            let unit = units[if is_far { self.random.below(units.len()) } else { near }];
            let state = states[self.random.below(3)];
            next.repeated[unit] = problem.units[unit].repeats && state == 2;
            problem.units[unit].tensors.iter().for_each(|&tensor| next.offloaded[tensor] = state == 1);
        }
        next
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
                let state = code % 3;
                code /= 3;
                choice.repeated[unit] = state == 2 && problem.units[unit].repeats;
                problem.units[unit].tensors.iter().for_each(|&tensor| choice.offloaded[tensor] = state == 1);
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
                let fitting =
                    all(&problem).filter(|choice| problem.carry_out(choice, capacity).peak <= capacity);
                let mut every = Search::new(&problem);
                fitting.for_each(|choice| every.place(&choice, capacity));
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
