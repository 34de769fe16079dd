//! One plan for workspace, offload and recomputation.

use super::{
    costs::Costs,
    plan::MemoryPlan,
    problem::Problem,
    trial::{Choice, Trial},
};
use crate::outline::Outline;
use planner::{ARENA_ALIGNMENT, Bytes};
use thiserror::Error;

/// A budget in which no plan of this kind fits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("what comes and goes in an iteration needs at least {floor}, most of all at layer '{node}'")]
pub struct BelowFloor {
    /// The smallest budget in which a plan was found.
    pub floor: Bytes,
    /// The layer whose pass needs that much.
    pub node: String,
}

/// The fastest iteration that was found whose buffers fit `budget` bytes of the device: every feature map is kept,
/// offloaded or computed again, and each kernel has as workspace what is free when it runs. What outlives an iteration
/// ([`ArenaLayout::base`](crate::ArenaLayout::base)) lies beside the budget.
///
/// # Errors
/// [`BelowFloor`]: nothing fits.
pub fn joint(outline: &Outline, costs: &Costs, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
    let problem = Problem::new(outline, costs);
    let mut capacity = budget.0 / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    loop {
        let search = Search { problem: &problem, capacity };
        let mut choice = problem.keep();
        let trial = search.improve(&mut choice);
        if trial.excess > 0 {
            return Err(search.floor(trial));
        }
        let plan = search.plan(&choice);
        if plan.device <= budget {
            return Ok(plan);
        }
        capacity -= (plan.device.0 - budget.0).next_multiple_of(ARENA_ALIGNMENT).min(capacity);
    }
}

struct Search<'a> {
    problem: &'a Problem<'a>,
    capacity: u64,
}

impl Search<'_> {
    fn trial(&self, choice: &Choice) -> Trial {
        self.problem.carry_out(choice, self.capacity)
    }

    /// Changes the choice until it fits, then until nothing makes it faster.
    fn improve(&self, choice: &mut Choice) -> Trial {
        let mut trial = self.trial(choice);
        while trial.excess > 0 {
            let flips: Vec<(Flip, Trial)> = self
                .flips()
                .filter_map(|flip| {
                    let changed = self.trial(&flip.on(choice));
                    (changed.excess < trial.excess).then_some((flip, changed))
                })
                .collect();
            let worth = |(_, changed): &(Flip, Trial)| {
                (trial.excess - changed.excess) as f64 / (changed.time_ms - trial.time_ms).max(1e-6)
            };
            let Some((flip, changed)) = flips.into_iter().max_by(|a, b| worth(a).total_cmp(&worth(b))) else {
                return trial;
            };
            *choice = flip.on(choice);
            trial = changed;
        }
        loop {
            let before_ms = trial.time_ms;
            for flip in self.flips() {
                let changed = self.trial(&flip.on(choice));
                if changed.excess == 0 && changed.time_ms < trial.time_ms {
                    *choice = flip.on(choice);
                    trial = changed;
                }
            }
            if trial.time_ms >= before_ms {
                return trial;
            }
        }
    }

    fn flips(&self) -> impl Iterator<Item = Flip> + '_ {
        let tensors = (0..self.problem.tensors.len()).map(Flip::Offload);
        let units =
            (0..self.problem.units.len()).filter(|&unit| self.problem.units[unit].repeats).map(Flip::Repeat);
        tensors.chain(units)
    }

    fn plan(&self, choice: &Choice) -> MemoryPlan {
        let trial = self.trial(choice);
        let actions = trial.actions(self.problem);
        MemoryPlan::new(self.problem.outline, self.problem.costs, actions, trial.workspace)
            .expect("what is read is there")
    }

    fn floor(&self, trial: Trial) -> BelowFloor {
        let node = self.problem.outline.nodes[trial.peak.0].name.clone();
        BelowFloor { floor: Bytes(trial.peak.1), node }
    }
}

#[derive(Clone, Copy, Debug)]
enum Flip {
    Offload(usize),
    Repeat(usize),
}

impl Flip {
    fn on(self, choice: &Choice) -> Choice {
        let mut choice = choice.clone();
        let flag = match self {
            Flip::Offload(tensor) => &mut choice.offloaded[tensor],
            Flip::Repeat(unit) => &mut choice.repeated[unit],
        };
        *flag = !*flag;
        choice
    }
}
