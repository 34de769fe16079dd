//! When each action of a schedule runs.

use super::costs::Costs;
use crate::action::{Action, Place, StreamKind};
use crate::schedule::Schedule;
use crate::{outline::Outline, placement};
use planner::Bytes;
use serde::{Deserialize, Serialize};

/// An iteration on its three streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// When each action begins and ends, in milliseconds.
    pub spans_ms: Vec<[f64; 2]>,
    /// When the last one ends.
    pub total_ms: f64,
    /// How long computation waits for copies.
    pub stall_ms: f64,
    /// How long each direction copies: to the host, from it.
    pub copying_ms: [f64; 2],
    /// What is alive on the device at each action, of what comes and goes in an iteration.
    pub alive: Vec<Bytes>,
}

/// Runs `schedule` on paper: the actions of a stream one after the other, each after those that it waits for.
/// `workspace` is what the passes of each node have. Panics if a node has none or no costs.
pub fn simulate(outline: &Outline, schedule: &Schedule, costs: &Costs, workspace: &[[Bytes; 2]]) -> Timeline {
    let known = workspace.len().min(costs.nodes.len());
    assert!(known >= outline.nodes.len(), "each node has costs and a workspace");
    let mut timeline = Timeline { alive: alive(schedule), ..Timeline::default() };
    let mut ends_ms = [0.0f64; 3];
    for (&action, waits) in schedule.actions.iter().zip(&schedule.waits) {
        let stream = action.stream();
        let free_ms = ends_ms[stream as usize];
        let start_ms = waits.iter().map(|&other| timeline.spans_ms[other][1]).fold(free_ms, f64::max);
        let mut ms = match action {
            Action::Update(first, end) => costs.update_ms * outline.part(first..end),
            Action::Offload(buffer) => costs.copy_ms(outline.size(buffer), 0),
            Action::Prefetch(buffer) => costs.copy_ms(outline.size(buffer), 1),
            _ => action.pass().map_or(0.0, |(node, pass)| costs.pass_ms(action, workspace[node][pass])),
        };
        match stream {
            StreamKind::Compute => {
                timeline.stall_ms += start_ms - free_ms;
                ms += if waits.is_empty() { 0.0 } else { costs.launch_ms };
            }
            StreamKind::CopyOut => timeline.copying_ms[0] += ms,
            StreamKind::CopyIn => timeline.copying_ms[1] += ms,
        }
        ends_ms[stream as usize] = start_ms + ms;
        timeline.spans_ms.push([start_ms, start_ms + ms]);
    }
    timeline.total_ms = ends_ms.into_iter().fold(0.0, f64::max);
    timeline
}

/// What is alive on the device at each action, of what comes and goes in an iteration, by its room in an arena.
pub(super) fn alive(schedule: &Schedule) -> Vec<Bytes> {
    let mut alive = placement::alive(schedule.transient(Place::Device).1.iter());
    alive.resize(schedule.actions.len(), 0);
    alive.into_iter().map(Bytes).collect()
}
