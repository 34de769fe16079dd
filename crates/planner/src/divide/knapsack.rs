//! The exact method for WD: a multiple-choice knapsack by dynamic programming over an expanding core.
//!
//! The idea is Pisinger's ("A minimal algorithm for the multiple-choice knapsack problem", 1995). The relaxed solution
//! is already almost optimal, and a group whose hull steps are worth clearly more or less than the price of a byte
//! keeps its place in it. So start from the relaxed solution and let the groups change their pick one after the other,
//! those closest to the price first. A state is a (workspace, time) of all groups, those that have not had their turn
//! at their relaxed picks; it may exceed the total as long as later groups can give bytes back. A state dies when
//! another is as good, or when even the best rate at which the *remaining* groups turn bytes into time cannot beat the
//! best division found. As groups leave, that rate gets worse, and usually nothing is left after a few of them.

use super::division::Division;
use super::hulls::{Point, Relaxation};
use crate::model::{Bytes, Cost, faster};

/// The fastest division of `total` among `groups`; `None` if a group is empty or the least workspaces do not fit.
pub fn divide_exact(groups: &[Vec<Cost>], total: Bytes) -> Option<Division> {
    let relaxation = Relaxation::new(groups, total)?;
    let best_ms = relaxation.time_ms(&relaxation.greedy);
    let positions = Search { relaxation: &relaxation, best_ms, best: None, changes: Vec::new() }.run();
    let picks = std::iter::zip(&relaxation.fronts, positions).map(|(front, at)| front[at].index);
    Some(Division::new(groups, picks.collect(), relaxation.lower_bound_ms))
}

/// A group that may have to leave its relaxed position.
struct CoreGroup {
    group: usize,
    /// Differences to that position.
    offers: Vec<Point>,
    rates: Rates,
}

/// All groups' workspace and time after some of them have changed their position.
#[derive(Clone, Copy)]
struct State {
    workspace: i64,
    time_ms: f64,
    /// The last change that led here, `None` in the relaxed solution.
    change: Option<usize>,
}

/// That a group took a position, and the change before it. Changes refer to each other by index.
#[derive(Clone, Copy)]
struct Change {
    before: Option<usize>,
    group: usize,
    position: usize,
}

/// What the groups still to come can do: the most milliseconds saved per byte taken, the fewest lost per byte given.
#[derive(Clone, Copy)]
struct Rates {
    best_saving: f64,
    least_loss: f64,
}

struct Search<'r> {
    relaxation: &'r Relaxation,
    /// Best time known, at first that of the greedy division.
    best_ms: f64,
    /// The last change that led to it, if the search found it.
    best: Option<Change>,
    /// The changes of all surviving states: paths back to the relaxed solution.
    changes: Vec<Change>,
}

impl Search<'_> {
    /// The positions of the fastest division.
    fn run(mut self) -> Vec<usize> {
        let core = self.core();
        let Relaxation { fronts, base, .. } = self.relaxation;
        let workspace = std::iter::zip(fronts, base).map(|(front, &at)| front[at].workspace).sum();
        let mut states = vec![State { workspace, time_ms: self.relaxation.time_ms(base), change: None }];
        for (group, rates) in std::iter::zip(&core, remaining_rates(&core)) {
            let reached = undominated(self.reach(group, &states, rates));
            // The change of each state that survived becomes a part of its path.
            let survivors = std::iter::zip(self.changes.len().., &reached);
            states = survivors.map(|(change, (state, _))| State { change: Some(change), ..*state }).collect();
            self.changes.extend(reached.into_iter().map(|(_, change)| change));
        }
        self.positions()
    }

    /// The groups that the best known division leaves in doubt, those nearest to the price of a byte first.
    fn core(&self) -> Vec<CoreGroup> {
        let Relaxation { fronts, base, price, .. } = self.relaxation;
        let groups = std::iter::zip(fronts, base).enumerate().map(|(group, (front, &base))| {
            CoreGroup::new(group, self.relaxation.open(front, base, self.best_ms))
        });
        let mut core: Vec<CoreGroup> = groups.filter(|group| group.offers.len() > 1).collect();
        let distance =
            |CoreGroup { rates, .. }: &CoreGroup| (price - rates.best_saving).min(rates.least_loss - price);
        core.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        core
    }

    /// Every state that `group` can make of `states` and that is not hopeless, with the change that makes it. Keeps the
    /// best division met on the way.
    fn reach(&mut self, group: &CoreGroup, states: &[State], rates: Rates) -> Vec<(State, Change)> {
        let mut reached = Vec::with_capacity(states.len() * group.offers.len());
        for offer in &group.offers {
            // The best known division may have improved since the core was made.
            let penalty_ms = self.relaxation.reduced_cost_ms(offer);
            if offer.workspace != 0 && !self.relaxation.may_improve(penalty_ms, self.best_ms) {
                continue;
            }
            for before in states {
                let change = Change { before: before.change, group: group.group, position: offer.index };
                let workspace = before.workspace.saturating_add(offer.workspace);
                let state = State { workspace, time_ms: before.time_ms + offer.time_ms, ..*before };
                if workspace <= self.relaxation.total && faster(state.time_ms, self.best_ms) {
                    self.best_ms = state.time_ms;
                    self.best = Some(change);
                }
                if faster(self.bound_ms(&state, rates), self.best_ms) {
                    reached.push((state, change));
                }
            }
        }
        reached
    }

    /// Time that nothing following from `state` can beat: free bytes spent, or missing bytes bought, at the best rate
    /// that the remaining groups have.
    fn bound_ms(&self, state: &State, rates: Rates) -> f64 {
        let free = self.relaxation.total.saturating_sub(state.workspace);
        state.time_ms - free as f64 * if free >= 0 { rates.best_saving } else { rates.least_loss }
    }

    /// The greedy positions, or those of the better division that was found.
    fn positions(&self) -> Vec<usize> {
        let mut next = self.best;
        let Relaxation { base, greedy, .. } = self.relaxation;
        let mut positions = if next.is_some() { base.clone() } else { greedy.clone() };
        while let Some(Change { before, group, position }) = next {
            positions[group] = position;
            next = before.map(|index| self.changes[index]);
        }
        positions
    }
}

impl CoreGroup {
    fn new(group: usize, offers: Vec<Point>) -> Self {
        let mut rates = Rates::NONE;
        for offer in offers.iter().filter(|offer| offer.workspace != 0) {
            // Time falls as workspace rises, so this is positive for either sign.
            let rate = -offer.time_ms / offer.workspace as f64;
            if offer.workspace > 0 {
                rates.best_saving = rates.best_saving.max(rate);
            } else {
                rates.least_loss = rates.least_loss.min(rate);
            }
        }
        Self { group, offers, rates }
    }
}

impl Rates {
    /// Nothing to save and nothing to give back.
    const NONE: Self = Self { best_saving: 0.0, least_loss: f64::INFINITY };
}

/// For every group of the core, what those after it can do.
fn remaining_rates(core: &[CoreGroup]) -> Vec<Rates> {
    let mut rest = Rates::NONE;
    let mut rates = vec![rest; core.len()];
    for (group, after) in std::iter::zip(core, &mut rates).rev() {
        *after = rest;
        rest.best_saving = rest.best_saving.max(group.rates.best_saving);
        rest.least_loss = rest.least_loss.min(group.rates.least_loss);
    }
    rates
}

/// The states that are faster than every one with less workspace.
fn undominated(mut states: Vec<(State, Change)>) -> Vec<(State, Change)> {
    // Every offer contributed a sorted run, which a stable sort merges.
    states.sort_by(|(a, _), (b, _)| a.workspace.cmp(&b.workspace).then(a.time_ms.total_cmp(&b.time_ms)));
    states.dedup_by(|(state, _), (fastest, _)| !faster(state.time_ms, fastest.time_ms));
    states
}
