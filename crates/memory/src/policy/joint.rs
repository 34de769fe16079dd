//! One plan for workspace, offload and recomputation.
//!
//! Prices ([`Bound`]) say what no plan beats and answer with choices that nearly fit; annealing mends and improves the best
//! of them, each trial carried out with its copies; then buffers are placed, and kernels get what lies free at their steps.

use super::{
    accudnn::accudnn,
    bound::Bound,
    costs::Costs,
    plan::{BelowFloor, MemoryPlan},
    problem::Problem,
    trial::{Choice, Trial},
};
use crate::outline::Outline;
use planner::{ARENA_ALIGNMENT, Bytes};

/// Searches: how often a change is a stretch of another choice, and the heat at the beginning, in parts of the time.
const ROUNDS: [(f64, f64); 3] = [(0.6, 1e-3), (0.5, 4e-3), (0.3, 1e-3)];
/// Trials of each search for each unit of a net.
const TRIALS: usize = 100;
/// Steps of the prices, before and after there is a plan.
const STEPS: [usize; 2] = [300, 500];
/// Placing takes some percent more than what is alive at once. So often the capacity is lowered until it fits.
const PLACINGS: usize = 10;

/// The fastest iteration that was found whose buffers fit `budget` bytes of the device: every feature map is kept,
/// offloaded or computed again, and each kernel has as workspace what is free when it runs. What outlives an iteration
/// ([`ArenaLayout::base`](crate::ArenaLayout::base)) lies beside the budget.
///
/// # Errors
/// [`BelowFloor`]: nothing fits.
pub fn joint(outline: &Outline, costs: &Costs, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
    let problem = Problem::new(outline, costs);
    let keep = problem.plan(&problem.keep(), budget.0, budget).ok();
    let unlimited_ms = costs.unlimited_ms(outline);
    if let Some(plan) = keep.as_ref().filter(|plan| plan.planned_ms() <= unlimited_ms * (1.0 + 1e-9)) {
        return Ok(MemoryPlan { bound_ms: unlimited_ms.min(plan.planned_ms()), ..plan.clone() });
    }
    let (floor, leanest) = problem.floor();
    let known = [keep, problem.plan(&leanest, 0, budget).ok(), accudnn(outline, costs, budget).ok()];
    let Some(first) = known.into_iter().flatten().min_by(|a, b| a.planned_ms().total_cmp(&b.planned_ms()))
    else {
        return Err(floor);
    };
    let capacity = budget.0 / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    let bound = Bound::new(&problem, capacity);
    let mut search = Search::new(&problem, capacity, unlimited_ms / capacity as f64);
    search.placed = Some((budget, first));
    search.known = vec![problem.keep(), problem.all(true, false), problem.all(false, true), leanest];
    search.known.clone().into_iter().for_each(|choice| search.see(choice));
    let mut prices = bound.zero();
    let mut answers = 0;
    bound.rise(&mut prices, STEPS[0], |answer| {
        answers += 1;
        if answers % 4 == 0 {
            search.see(answer.choice.clone());
            search.known.push(answer.choice.clone());
        }
        search.fastest_ms()
    });
    let starts = search.lacks.clone().into_iter().chain(search.fits.clone()).map(|(_, choice)| choice);
    let starts: Vec<Choice> = starts.collect();
    for way in ROUNDS {
        (search.capacity, search.fits, search.lacks, search.way) = (capacity, None, None, way);
        starts.iter().for_each(|choice| search.see(choice.clone()));
        search.settle(TRIALS * problem.units.len().max(100));
    }
    let (_, mut plan) = search.placed.expect("the first if no other");
    plan.bound_ms = bound.rise(&mut prices, STEPS[1], |_| plan.planned_ms()).min(plan.planned_ms());
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
            let mut search = Search::new(self, 0, 1.0);
            [self.all(false, true), self.keep()].into_iter().for_each(|choice| search.see(choice));
            search.anneal(TRIALS * self.units.len());
            leanest = search.lacks.map_or(leanest, |(_, choice)| choice);
        }
        let nothing = BelowFloor { floor: Bytes::ZERO, node: String::new() };
        (self.plan(&leanest, 0, Bytes::ZERO).err().unwrap_or(nothing), leanest)
    }

    /// The plan of a choice whose copies are timed for `capacity`.
    ///
    /// # Errors
    /// It does not fit `budget`.
    fn plan(&self, choice: &Choice, capacity: u64, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
        let trial = self.carry_out(choice, capacity);
        let workspace = self.costs.workspaces(|node, pass| trial.limits[node][pass]);
        let actions = trial.actions(self);
        let beside = MemoryPlan::within(self.outline, self.costs, actions.clone(), budget);
        // Which of the two ways to place workspaces is better differs from net to net.
        let among = MemoryPlan::exactly(self.outline, self.costs, (actions, workspace), budget);
        match (beside, among) {
            (Ok(a), Ok(b)) if b.planned_ms() < a.planned_ms() => Ok(b),
            (Err(a), Err(b)) if b.floor < a.floor => Err(b),
            (Err(_), among @ Ok(_)) => among,
            (beside, _) => beside,
        }
    }
}

/// A search for the fastest choice within a capacity.
struct Search<'a> {
    problem: &'a Problem<'a>,
    capacity: u64,
    /// What a byte too much costs, in milliseconds.
    price: f64,
    /// The fastest choice that fits, with its time.
    fits: Option<(f64, Choice)>,
    /// The best where bytes too much are paid for.
    lacks: Option<(f64, Choice)>,
    /// The fastest plan whose buffers could be placed within a budget.
    placed: Option<(Bytes, MemoryPlan)>,
    /// What changes are taken from: each is good somewhere.
    known: Vec<Choice>,
    /// One of [`ROUNDS`].
    way: (f64, f64),
    random: Random,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem<'a>, capacity: u64, price: f64) -> Self {
        Self {
            problem,
            capacity,
            price,
            fits: None,
            lacks: None,
            placed: None,
            known: Vec::new(),
            way: ROUNDS[0],
            random: Random(0x9E37_79B9_7F4A_7C15),
        }
    }

    /// Goes on with a capacity that is smaller by `less`.
    fn lower(&mut self, less: u64) {
        self.capacity = self.capacity.saturating_sub(less);
        let known = [self.fits.take(), self.lacks.take()];
        known.into_iter().flatten().for_each(|(_, choice)| self.see(choice));
    }

    /// Anneals, in ever smaller capacities, until what is best can be placed.
    fn settle(&mut self, trials: usize) {
        self.anneal(trials);
        for _ in 0..PLACINGS {
            if self.lacks.as_ref().is_some_and(|(ms, _)| *ms < self.fastest_ms()) {
                // To lack memory must not pay.
                self.price *= 4.0;
                self.lower(0);
            } else {
                let Some(lacks) = self.place() else { break };
                self.lower(lacks.max(self.capacity / 256).next_multiple_of(ARENA_ALIGNMENT));
            }
            self.anneal(trials / 4);
        }
    }

    /// The time of the fastest choice that fits, or else of the plan.
    fn fastest_ms(&self) -> f64 {
        let placed_ms = self.placed.as_ref().map(|(_, plan)| plan.planned_ms());
        self.fits.as_ref().map(|(ms, _)| *ms).or(placed_ms).unwrap_or(f64::INFINITY)
    }

    /// Places the fastest choice that fits; if that fails, how many bytes lack.
    fn place(&mut self) -> Option<u64> {
        let ((fits_ms, choice), (budget, plan)) = (self.fits.as_ref()?, self.placed.as_mut()?);
        if *fits_ms >= plan.planned_ms() {
            return None;
        }
        match self.problem.plan(choice, self.capacity, *budget) {
            Ok(new) if new.planned_ms() < plan.planned_ms() => *plan = new,
            Ok(_) => {}
            Err(below) => return Some(below.floor.0 - budget.0),
        }
        None
    }

    /// What a choice costs, noted if there was no better one.
    fn energy(&mut self, choice: &Choice) -> f64 {
        let Trial { time_ms, peak, host, .. } = self.problem.carry_out(choice, self.capacity);
        let lacks = peak.1.saturating_sub(self.capacity) + host.saturating_sub(self.problem.costs.host.0);
        let energy = time_ms + self.price * lacks as f64;
        let note = |best: &mut Option<(f64, Choice)>| {
            if best.as_ref().is_none_or(|(least, _)| energy < *least) {
                *best = Some((energy, choice.clone()));
            }
        };
        note(&mut self.lacks);
        if lacks == 0 {
            note(&mut self.fits);
        }
        energy
    }

    fn see(&mut self, choice: Choice) {
        self.energy(&choice);
    }

    /// Changes the best choice at random: for the better always, for the worse ever less.
    fn anneal(&mut self, trials: usize) {
        let problem = self.problem;
        let moves = |unit: &usize| {
            let unit = &problem.units[*unit];
            unit.repeats || unit.tensors.iter().any(|&tensor| problem.tensors[tensor].leaves)
        };
        let units: Vec<usize> = (0..problem.units.len()).filter(moves).collect();
        let Some((mut energy, mut now)) = self.lacks.clone().filter(|_| !units.is_empty()) else { return };
        let [hot, cold] = [self.way.1, 1e-5].map(|part| part * energy);
        let mut placings = PLACINGS * PLACINGS;
        for trial in 0..trials {
            let heat = hot * (cold / hot).powf(trial as f64 / trials as f64);
            let next = self.neighbour(&now, &units);
            let fastest_ms = self.fastest_ms();
            let changed = self.energy(&next);
            if self.fastest_ms() < fastest_ms && placings > 0 && trial > trials / 2 {
                self.place();
                placings -= 1;
            }
            if changed <= energy || self.random.part() < ((energy - changed) / heat).exp() {
                (now, energy) = (next, changed);
            }
        }
    }

    /// A choice like `now`: one to three neighbours of `units` do something else, or a stretch of them does what it does in
    /// another known choice, as to compute again pays for whole chains.
    fn neighbour(&mut self, now: &Choice, units: &[usize]) -> Choice {
        let (problem, mut next) = (self.problem, now.clone());
        let first = self.random.below(units.len());
        if !self.known.is_empty() && self.random.part() < self.way.0 {
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
            let unit = units[(first + step).saturating_sub(10).min(units.len() - 1)];
            let state = self.random.below(3);
            next.repeated[unit] = problem.units[unit].repeats && state == 2;
            problem.units[unit].tensors.iter().for_each(|&tensor| next.offloaded[tensor] = state == 1);
        }
        next
    }
}

/// Marsaglia's xorshift: the same choices in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
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
            let [least, most] = [
                floor(outline, costs).floor,
                problem.plan(&problem.keep(), u64::MAX, Bytes(1 << 40)).unwrap().device,
            ];
            for part in [0.05, 0.3, 0.6] {
                let budget = Bytes(least.0 + ((most.0 - least.0) as f64 * part) as u64);
                let capacity = budget.0 / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
                // What is too much in sum cannot be placed.
                let fitting =
                    all(&problem).filter(|choice| problem.carry_out(choice, capacity).peak.1 <= capacity);
                let fits = fitting.filter_map(|choice| problem.plan(&choice, capacity, budget).ok());
                let best_ms = fits.map(|plan| plan.planned_ms()).fold(f64::INFINITY, f64::min);
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
