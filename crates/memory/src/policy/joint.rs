//! One plan for workspace, offload and recomputation.
//!
//! Prices ([`Bound`]) say what no plan beats and answer with choices that nearly fit; annealing mends and improves the best
//! of them, each trial carried out with its copies; then buffers are placed, and kernels get what lies free at their steps.

use super::{
    bound::Bound,
    costs::Costs,
    plan::{BelowFloor, MemoryPlan},
    problem::Problem,
    trial::{Choice, Trial},
};
use crate::outline::Outline;
use planner::{ARENA_ALIGNMENT, Bytes};

/// Trials for each unit of a net.
const TRIALS: usize = 200;
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
    let mut best = keep.or_else(|| problem.plan(&leanest, 0, budget).ok());
    let Some(slowest_ms) = best.as_ref().map(MemoryPlan::planned_ms) else { return Err(floor) };
    let mut capacity = budget.0 / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    let bound = Bound::new(&problem, capacity);
    let mut search = Search::new(&problem, capacity, unlimited_ms / capacity as f64);
    let starts = [problem.keep(), problem.all(true, false), problem.all(false, true), leanest];
    starts.into_iter().for_each(|choice| search.see(choice));
    let mut prices = bound.zero();
    let mut answers = 0;
    bound.rise(&mut prices, STEPS[0], |answer| {
        answers += 1;
        if answers % 4 == 0 {
            search.see(answer.choice.clone());
        }
        search.fits.as_ref().map_or(slowest_ms, |(ms, _)| *ms)
    });
    let mut trials = TRIALS * problem.units.len();
    for _ in 0..PLACINGS {
        search.anneal(trials);
        let Some((_, choice)) = search.fits.clone() else { break };
        let lacks = match problem.plan(&choice, capacity, budget) {
            Ok(plan) => {
                best =
                    best.into_iter().chain([plan]).min_by(|a, b| a.planned_ms().total_cmp(&b.planned_ms()));
                break;
            }
            Err(needed) => needed.floor.0 - budget.0,
        };
        capacity -= lacks.max(capacity / 256).next_multiple_of(ARENA_ALIGNMENT).min(capacity);
        trials = TRIALS / 4 * problem.units.len();
        search = search.within(capacity);
    }
    let mut plan = best.ok_or(floor)?;
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
        let actions = self.carry_out(choice, capacity).actions(self);
        MemoryPlan::within(self.outline, self.costs, actions, budget)
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
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem<'a>, capacity: u64, price: f64) -> Self {
        Self { problem, capacity, price, fits: None, lacks: None }
    }

    /// The same within another capacity.
    fn within(self, capacity: u64) -> Self {
        let mut search = Self::new(self.problem, capacity, self.price);
        self.fits.into_iter().chain(self.lacks).for_each(|(_, choice)| search.see(choice));
        search
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

    /// Changes the best choice at random, a few neighbouring units at a time: for the better always, for the worse ever less.
    fn anneal(&mut self, trials: usize) {
        let problem = self.problem;
        let moves = |unit: &usize| {
            let unit = &problem.units[*unit];
            unit.repeats || unit.tensors.iter().any(|&tensor| problem.tensors[tensor].leaves)
        };
        let units: Vec<usize> = (0..problem.units.len()).filter(moves).collect();
        let Some((mut energy, mut now)) = self.lacks.clone().filter(|_| !units.is_empty()) else { return };
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let [hot, cold] = [1e-3, 1e-5].map(|part| part * energy);
        for trial in 0..trials {
            let heat = hot * (cold / hot).powf(trial as f64 / trials as f64);
            let mut next = now.clone();
            let first = random.below(units.len());
            for change in 0..1 + random.below(3) {
                let step = if change == 0 { 10 } else { random.below(21) };
                let unit = units[(first + step).saturating_sub(10).min(units.len() - 1)];
                let state = random.below(3);
                next.repeated[unit] = problem.units[unit].repeats && state == 2;
                problem.units[unit].tensors.iter().for_each(|&tensor| next.offloaded[tensor] = state == 1);
            }
            let changed = self.energy(&next);
            if changed <= energy || random.part() < ((energy - changed) / heat).exp() {
                (now, energy) = (next, changed);
            }
        }
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
