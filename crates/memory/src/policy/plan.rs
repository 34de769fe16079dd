//! What a policy has decided.

use super::{
    costs::Costs,
    simulate::{Timeline, simulate},
};
use crate::{
    layout::ArenaLayout,
    outline::{Outline, Scratch},
    room::Beside,
    schedule::{Action, Buffer, Schedule, ScheduleError},
};
use planner::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
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
#[derive(Clone, Debug, PartialEq, Eq, Error)]
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

    /// The plan of `actions` in `budget` bytes of the device: workspaces lie between the other buffers, which are placed
    /// first, so that smaller ones fit as well.
    ///
    /// # Errors
    /// It does not fit.
    ///
    /// # Panics
    /// If actions need what is not there.
    pub(super) fn within(
        outline: &Outline,
        costs: &Costs,
        actions: Vec<Action>,
        budget: Bytes,
    ) -> Result<Self, BelowFloor> {
        let fastest = costs.workspaces(|_, _| Bytes::MAX);
        if let Ok(plan) = Self::exactly(outline, costs, (actions.clone(), fastest), budget) {
            return Ok(plan);
        }
        let mut workspace = vec![[Bytes::ZERO; 2]; outline.nodes.len()];
        let bare = with_workspace(outline, costs, &workspace);
        let schedule = Schedule::new(&bare, actions).expect("what is needed is there");
        let beside = Beside::new(&schedule);
        let kernels: Vec<(usize, usize, usize)> = (schedule.actions.iter().enumerate())
            .filter_map(|(at, &action)| Some((at, action.pass()?)))
            .filter(|(_, (node, pass))| !costs.nodes[*node][*pass].front.is_empty())
            .map(|(at, (node, pass))| (at, node, pass))
            .collect();
        let ends = kernels
            .iter()
            .map(|&(at, node, pass)| (beside.end_with(at, costs.nodes[node][pass].least()), node));
        let largest = (beside.end(), beside.fullest(&schedule));
        let needed = ends.fold(largest, |most, one| if one.0 > most.0 { one } else { most });
        if needed.0 > budget.0 {
            return Err(BelowFloor { floor: Bytes(needed.0), node: outline.nodes[needed.1].name.clone() });
        }
        let mut limits = vec![[Bytes::MAX; 2]; outline.nodes.len()];
        for (at, node, pass) in kernels {
            limits[node][pass] = limits[node][pass].min(beside.limit(at, budget));
            workspace[node][pass] =
                costs.nodes[node][pass].workspace(limits[node][pass]).expect("the least fits");
        }
        Ok(Self::new(outline, costs, schedule.actions, workspace).expect("it is a schedule"))
    }

    /// The plan of `actions` with these workspaces, wherever buffers are placed best.
    ///
    /// # Errors
    /// It does not fit `budget`.
    ///
    /// # Panics
    /// If actions need what is not there.
    pub(super) fn exactly(
        outline: &Outline,
        costs: &Costs,
        (actions, workspace): (Vec<Action>, Vec<[Bytes; 2]>),
        budget: Bytes,
    ) -> Result<Self, BelowFloor> {
        let plan = Self::new(outline, costs, actions, workspace).expect("what is needed is there");
        if plan.device <= budget {
            return Ok(plan);
        }
        let steps = plan.actions.iter().zip(&plan.timeline.alive);
        let steps = steps.filter_map(|(action, alive)| Some((alive, action.pass()?.0)));
        let node = steps.max_by_key(|&(alive, _)| alive).map(|(_, node)| outline.nodes[node].name.clone());
        Err(BelowFloor { floor: plan.device, node: node.unwrap_or_default() })
    }

    /// How long an iteration takes if every cost is as given, in milliseconds.
    pub fn planned_ms(&self) -> f64 {
        self.timeline.total_ms
    }
}

/// The outline in which kernels have `workspace`, side by side with nothing.
pub(super) fn with_workspace(outline: &Outline, costs: &Costs, workspace: &[[Bytes; 2]]) -> Outline {
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
    let prefetch = |action: &Action| if let Action::Prefetch(buffer) = action { Some(*buffer) } else { None };
    let returning: BTreeSet<Buffer> = schedule.actions.iter().filter_map(prefetch).collect();
    let seen = schedule.buffers.iter().filter(|(buffer, residences)| {
        let is_kept = matches!(buffer, Buffer::Data(_) | Buffer::Saved(_));
        is_kept
            && residences.last().is_some_and(|last| last.last >= turn)
            && residences[0].bytes > Bytes::ZERO
    });
    let fate = |(buffer, residences): &(Buffer, Vec<crate::Residence>)| {
        let fate = match residences.len() {
            1 => Fate::Kept,
            _ if returning.contains(buffer) => Fate::Offloaded,
            _ => Fate::Recomputed,
        };
        (*buffer, outline.size(*buffer), fate)
    };
    seen.map(fate).collect()
}
