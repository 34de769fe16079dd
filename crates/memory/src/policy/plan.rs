//! What a policy has decided.

use super::costs::Costs;
use super::simulate::{self, Timeline, simulate};
use crate::action::{Action, Buffer, Residence};
use crate::layout::ArenaLayout;
use crate::outline::Outline;
use crate::room::{Beside, largest};
use crate::schedule::{Schedule, ScheduleError};
use planner::{ARENA_ALIGNMENT, Bytes};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What happens to a feature map between its last use forward and its first use backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It stays on the device.
    Kept,
    /// It is copied to the host and back.
    Offloaded,
    /// It is given up and computed again.
    Recomputed,
}

/// A budget in which no plan of a policy fits, or whose plan offloads too much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Error)]
#[error("an iteration needs {floor}, most of all at layer '{node}'; of the host's memory it lacks {lacks}")]
pub struct BelowFloor {
    /// The smallest budget in which a plan was found.
    pub floor: Bytes,
    /// The layer whose pass needs most.
    pub node: String,
    /// So much more of the host's memory is wanted than may be page-locked.
    pub lacks: Bytes,
}

/// The iteration that a policy wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// Its actions, for [`Schedule::new`].
    pub actions: Vec<Action>,
    /// What the kernels of each node's forward and backward pass have as workspace.
    pub workspace: Vec<[Bytes; 2]>,
    /// What each of them may have: what is free when it runs, or its workspace where more would not serve all.
    pub limits: Vec<[Bytes; 2]>,
    /// Every blob's data and every saved state that a backward pass sees again, with its size.
    pub fates: Vec<(Buffer, Bytes, Fate)>,
    /// What comes and goes in an iteration takes so much on the device.
    pub device: Bytes,
    /// What is offloaded takes so much of the host's memory.
    pub host: Bytes,
    /// When each action runs, if every cost is as given.
    pub timeline: Timeline,
    /// No plan of this kind is faster, in milliseconds; 0 where nothing is known.
    pub bound_ms: f64,
}

impl MemoryPlan {
    /// The plan of `actions` with these workspaces. Panics as [`simulate`].
    ///
    /// # Errors
    /// As [`Schedule::new`].
    pub fn new(
        outline: &Outline,
        costs: &Costs,
        actions: Vec<Action>,
        workspace: Vec<[Bytes; 2]>,
    ) -> Result<Self, ScheduleError> {
        let outline = &with_workspace(outline, costs, &workspace);
        let schedule = Schedule::new(outline, actions)?;
        let timeline = simulate(outline, &schedule, costs, &workspace);
        let fates = fates(outline, &schedule);
        let layout = ArenaLayout::new(std::slice::from_ref(outline), vec![schedule]);
        let report = layout.report.nets[0];
        let actions = layout.nets.into_iter().next().map(|net| net.schedule.actions).unwrap_or_default();
        let (device, host) = (report.transient, report.slab);
        let limits = workspace.clone();
        Ok(Self { actions, workspace, limits, fates, device, host, timeline, bound_ms: 0.0 })
    }

    /// How long an iteration takes if every cost is as given, in milliseconds.
    pub fn planned_ms(&self) -> f64 {
        self.timeline.total_ms
    }
}

/// Actions whose workspaces are to be found.
pub(super) struct Fitting<'a> {
    outline: &'a Outline,
    costs: &'a Costs,
    /// Without workspaces.
    schedule: Schedule,
    /// The same in its places.
    beside: Beside,
}

impl<'a> Fitting<'a> {
    /// Panics if actions need what is not there.
    pub(super) fn new(outline: &'a Outline, costs: &'a Costs, actions: Vec<Action>) -> Self {
        let bare = with_workspace(outline, costs, &vec![[Bytes::ZERO; 2]; outline.nodes.len()]);
        let schedule = Schedule::new(&bare, actions).expect("what is needed is there");
        Self { outline, costs, beside: Beside::new(&schedule), schedule }
    }

    /// The actions with kernels, by index, and their nodes and passes.
    fn kernels(&self) -> impl Iterator<Item = (usize, (usize, usize))> {
        let passes = self.schedule.actions.iter().map(|action| action.pass()).enumerate();
        let counts = |&(node, pass): &(usize, usize)| self.costs.nodes[node][pass].has_kernels();
        passes.filter_map(move |(at, pass)| Some((at, pass.filter(counts)?)))
    }

    /// What it takes with `workspace` in the better of the two ways of [`ArenaLayout`], or no more than `enough`.
    pub(super) fn takes(&self, workspace: &[[Bytes; 2]], enough: Bytes) -> Bytes {
        let at = self.kernels().map(|(at, (node, pass))| (at, workspace[node][pass]));
        self.beside.takes(&at.collect::<Vec<_>>(), enough)
    }

    /// The fastest workspaces if all that is alive lay without gaps within `limit`, or else the smallest.
    pub(super) fn ideal(&self, limit: Bytes) -> Vec<[Bytes; 2]> {
        let free = self.free(limit);
        self.costs.workspaces(|node, pass| free[node][pass])
    }

    /// What `budget` leaves to each node's passes beside what is alive then.
    fn free(&self, budget: Bytes) -> Vec<[Bytes; 2]> {
        let alive = simulate::alive(&self.schedule);
        self.limits(|at| budget.saturating_sub(alive[at]))
    }

    /// What each node's passes may have where so much is `free` at each action.
    fn limits(&self, free: impl Fn(usize) -> Bytes) -> Vec<[Bytes; 2]> {
        let mut limits = vec![[Bytes::MAX; 2]; self.outline.nodes.len()];
        for (at, (node, pass)) in self.kernels() {
            let free = Bytes(free(at).0 / ARENA_ALIGNMENT * ARENA_ALIGNMENT);
            limits[node][pass] = limits[node][pass].min(free);
        }
        limits
    }

    /// The fastest workspaces within `budget` if that is wanted and there is a place for each, or the largest where all
    /// else is placed first, which more memory makes no smaller, or less for all if that is wanted, or the smallest.
    pub(super) fn workspaces(&self, budget: Bytes, fastest: bool) -> Result<Vec<[Bytes; 2]>, BelowFloor> {
        let fits = |one: &Vec<[Bytes; 2]>| self.takes(one, budget) <= budget;
        if let Some(ideal) = fastest.then(|| self.ideal(budget)).filter(fits) {
            return Ok(ideal);
        }
        let holes = self.limits(|at| largest(&self.beside.holes(at), budget));
        let in_holes = self.costs.workspaces(|node, pass| holes[node][pass]);
        if fits(&in_holes) {
            return Ok(in_holes);
        }
        let least = self.ideal(Bytes::ZERO);
        let takes = self.takes(&least, budget);
        // What lies apart may leave no hole to any kernel, though smaller workspaces for all have their places.
        let mut less = (1..32).rev().filter(|_| fastest).map(|part| self.ideal(Bytes(budget.0 / 32 * part)));
        if takes <= budget { Ok(less.find(fits).unwrap_or(least)) } else { Err(self.below(takes)) }
    }

    /// The time of an iteration with `workspace`, in milliseconds.
    pub(super) fn time_ms(&self, workspace: &[[Bytes; 2]]) -> f64 {
        simulate(self.outline, &self.schedule, self.costs, workspace).total_ms
    }

    /// The plan with `workspace`, if it fits `budget`.
    pub(super) fn plan(&self, workspace: Vec<[Bytes; 2]>, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
        let plan = MemoryPlan::new(self.outline, self.costs, self.schedule.actions.clone(), workspace);
        let mut plan = plan.expect("it is a schedule");
        if plan.device > budget {
            return Err(self.below(plan.device));
        }
        let (free, fastest) = (self.free(budget), self.ideal(budget));
        for (_, (node, pass)) in self.kernels() {
            if fastest[node][pass] == plan.workspace[node][pass] {
                plan.limits[node][pass] = free[node][pass];
            }
        }
        Ok(plan)
    }

    /// The same with [`Fitting::workspaces`], if there are any.
    pub(super) fn within(&self, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
        self.plan(self.workspaces(budget, true)?, budget)
    }

    /// More than `floor` bytes are needed, where most is alive.
    fn below(&self, floor: Bytes) -> BelowFloor {
        let passes = self.schedule.actions.iter().zip(simulate::alive(&self.schedule));
        let passes = passes.filter_map(|(action, alive)| Some((alive, action.pass()?.0)));
        let most = passes.max_by_key(|&(alive, _)| alive);
        let name = |(_, node): (Bytes, usize)| self.outline.nodes[node].name.clone();
        BelowFloor { floor, node: most.map(name).unwrap_or_default(), lacks: Bytes::ZERO }
    }
}

/// The outline in which kernels have `workspace`, side by side with nothing.
fn with_workspace(outline: &Outline, costs: &Costs, workspace: &[[Bytes; 2]]) -> Outline {
    let mut outline = outline.clone();
    for ((node, costs), workspace) in outline.nodes.iter_mut().zip(&costs.nodes).zip(workspace) {
        for pass in (0..2).filter(|&pass| costs[pass].has_kernels()) {
            (node.scratch[pass], node.keeps_scratch) = (workspace[pass], false);
        }
    }
    outline
}

/// What the actions of `schedule` mean for each buffer that a backward pass sees again.
fn fates(outline: &Outline, schedule: &Schedule) -> Vec<(Buffer, Bytes, Fate)> {
    let turn = schedule.actions.iter().position(|action| matches!(action, Action::Backward(_)));
    let turn = turn.unwrap_or(schedule.actions.len());
    let seen = schedule.buffers.iter().filter(|(buffer, residences)| {
        let is_kept = matches!(buffer, Buffer::Data(_) | Buffer::Saved(_));
        let is_back = residences.last().is_some_and(|last| last.last >= turn);
        is_kept && is_back && residences[0].bytes > Bytes::ZERO
    });
    let fate = |(buffer, residences): &(Buffer, Vec<Residence>)| {
        let fate = match residences.len() {
            1 => Fate::Kept,
            _ if schedule.actions.contains(&Action::Prefetch(*buffer)) => Fate::Offloaded,
            _ => Fate::Recomputed,
        };
        (*buffer, outline.size(*buffer), fate)
    };
    seen.map(fate).collect()
}
