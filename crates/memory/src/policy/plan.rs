//! What a policy has decided.

use super::{
    costs::Costs,
    simulate::{self, Timeline, simulate},
};
use crate::{
    layout::ArenaLayout,
    outline::{Outline, Scratch},
    placement::place,
    room::{Beside, largest, smallest_end},
    schedule::{Action, Buffer, Schedule, ScheduleError},
};
use planner::Bytes;
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

/// A budget in which no plan of a policy fits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Error)]
#[error("what comes and goes in an iteration needs {floor}, most of all at layer '{node}'")]
pub struct BelowFloor {
    /// The smallest budget in which a plan was found.
    pub floor: Bytes,
    /// The layer whose pass needs most.
    pub node: String,
}

/// The iteration that a policy wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// Its actions, for [`Schedule::new`].
    pub actions: Vec<Action>,
    /// What the kernels of each node's forward and backward pass have as workspace.
    pub workspace: Vec<[Bytes; 2]>,
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
    /// The plan of `actions` with these workspaces.
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
        Ok(Self { actions, workspace, fates, device, host, timeline, bound_ms: 0.0 })
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
    beside: Beside,
    kernels: Vec<KernelPass>,
}

/// A pass with kernels.
struct KernelPass {
    node: usize,
    pass: usize,
    /// Its scratch among the residences.
    scratch: usize,
    /// Where nothing lies when it runs.
    holes: Vec<(u64, u64)>,
}

impl<'a> Fitting<'a> {
    /// # Panics
    /// If actions need what is not there.
    pub(super) fn new(outline: &'a Outline, costs: &'a Costs, actions: Vec<Action>) -> Self {
        let bare = with_workspace(outline, costs, &vec![[Bytes::ZERO; 2]; outline.nodes.len()]);
        let schedule = Schedule::new(&bare, actions).expect("what is needed is there");
        let beside = Beside::new(&schedule);
        let of_kernel = |(scratch, buffer): (usize, &Buffer)| {
            let Buffer::Scratch(at) = *buffer else { return None };
            let (node, pass) = schedule.actions[at].pass()?;
            let has_kernels = !costs.nodes[node][pass].front.is_empty();
            has_kernels.then(|| KernelPass { node, pass, scratch, holes: beside.holes(at) })
        };
        let kernels = beside.buffers.iter().enumerate().filter_map(of_kernel).collect();
        Self { outline, costs, schedule, beside, kernels }
    }

    /// What it takes with `workspace`, placed in the better of the two ways of [`ArenaLayout`].
    pub(super) fn takes(&self, workspace: &[[Bytes; 2]]) -> Bytes {
        let mut residences = self.beside.residences.clone();
        self.kernels.iter().for_each(|one| residences[one.scratch].bytes = workspace[one.node][one.pass]);
        let is_scratch = |index: usize| matches!(self.beside.buffers[index], Buffer::Scratch(_));
        let ways = [false, true].map(|last| place(&residences, |index| last && is_scratch(index)).len);
        Bytes(ways[0].min(ways[1]))
    }

    /// The fastest workspaces within `budget`; or the largest where all else is placed first, so that smaller ones fit
    /// as well; or the smallest.
    ///
    /// # Errors
    /// Not even these fit.
    pub(super) fn workspaces(&self, budget: Bytes) -> Result<Vec<[Bytes; 2]>, BelowFloor> {
        let [fastest, smallest] = [Bytes::MAX, Bytes::ZERO].map(|limit| self.costs.workspaces(|_, _| limit));
        if self.takes(&fastest) <= budget {
            return Ok(fastest);
        }
        let least = |one: &KernelPass| self.costs.nodes[one.node][one.pass].least();
        let ends = self.kernels.iter().map(|one| (smallest_end(&one.holes, least(one)), Some(one.node)));
        let (floor, node) =
            ends.fold((self.beside.end(), None), |most, one| if one.0 > most.0 { one } else { most });
        if floor > budget.0 {
            let among = self.takes(&smallest);
            let below = || self.below(among.min(Bytes(floor)), node);
            return (among <= budget).then_some(smallest).ok_or_else(below);
        }
        let mut limits = vec![[Bytes::MAX; 2]; self.outline.nodes.len()];
        for KernelPass { node, pass, holes, .. } in &self.kernels {
            limits[*node][*pass] = limits[*node][*pass].min(largest(holes, budget.0));
        }
        Ok(self.costs.workspaces(|node, pass| limits[node][pass]))
    }

    /// The time of an iteration with `workspace`, in milliseconds.
    pub(super) fn time_ms(&self, workspace: &[[Bytes; 2]]) -> f64 {
        simulate(self.outline, &self.schedule, self.costs, workspace).total_ms
    }

    /// The plan with `workspace`.
    ///
    /// # Errors
    /// It does not fit `budget`.
    pub(super) fn plan(&self, workspace: Vec<[Bytes; 2]>, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
        let actions = self.schedule.actions.clone();
        let plan = MemoryPlan::new(self.outline, self.costs, actions, workspace).expect("it is a schedule");
        if plan.device > budget { Err(self.below(plan.device, None)) } else { Ok(plan) }
    }

    /// The same with [`Fitting::workspaces`].
    ///
    /// # Errors
    /// There are none.
    pub(super) fn within(&self, budget: Bytes) -> Result<MemoryPlan, BelowFloor> {
        self.plan(self.workspaces(budget)?, budget)
    }

    /// More than `floor` bytes are needed by `node`, or where most is alive.
    fn below(&self, floor: Bytes, node: Option<usize>) -> BelowFloor {
        let alive = simulate::alive(&self.schedule);
        let passes = self.schedule.actions.iter().zip(alive);
        let passes = passes.filter_map(|(action, alive)| Some((alive, action.pass()?.0)));
        let fullest = || passes.max_by_key(|&(alive, _)| alive).map(|(_, node)| node);
        let node = node.or_else(fullest).map(|node| self.outline.nodes[node].name.clone());
        BelowFloor { floor, node: node.unwrap_or_default() }
    }
}

/// The outline in which kernels have `workspace`, side by side with nothing.
fn with_workspace(outline: &Outline, costs: &Costs, workspace: &[[Bytes; 2]]) -> Outline {
    let mut outline = outline.clone();
    for ((node, costs), workspace) in outline.nodes.iter_mut().zip(&costs.nodes).zip(workspace) {
        for pass in (0..2).filter(|&pass| !costs[pass].front.is_empty()) {
            node.scratch[pass] = Scratch::Transient(workspace[pass]);
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
        is_kept
            && residences.last().is_some_and(|last| last.last >= turn)
            && residences[0].bytes > Bytes::ZERO
    });
    let fate = |(buffer, residences): &(Buffer, Vec<crate::Residence>)| {
        let fate = match residences.len() {
            1 => Fate::Kept,
            _ if schedule.actions.contains(&Action::Prefetch(*buffer)) => Fate::Offloaded,
            _ => Fate::Recomputed,
        };
        (*buffer, outline.size(*buffer), fate)
    };
    seen.map(fate).collect()
}
