//! How much workspace each kernel can have under a budget of device memory: what is free when it runs.
//!
//! Blobs and gradients come and go in the course of an iteration. A limit that is the same for all kernels has to fit the
//! step where most is alive; here each kernel gets what its own step leaves free. Everything but workspaces is placed first
//! and stays where it is; a workspace then lies in the largest hole of its step, so that what is promised here is what
//! [`Layout`] does. Workspaces never meet, as no two steps run at once.

use super::{
    Layout, Net,
    memory::{Lifetime, Placement, place},
    schedule::{Buffer, Pass, Schedule, Step},
};
use cudnn_layers::conv::ConvOp;
use planner::{Bytes, Headroom, Kernel};
use std::collections::{HashMap, HashSet};
use tensor::ALIGNMENT;

/// What the buffers of a net leave free at the step of every kernel. Lengths are in bytes.
pub struct Room {
    /// What outlives an iteration: parameters, gradients, history, constant inputs.
    base: usize,
    /// The end of everything that is neither persistent nor a workspace.
    end: usize,
    /// Of every kernel the holes between the buffers that are alive at its step: (first, one past the last), the one behind
    /// the last buffer open to the end.
    holes: Vec<Vec<(usize, usize)>>,
}

impl Room {
    /// The room that `net` leaves to `kernels`, which are its own, in any order; with room for a solver's history if
    /// `with_history`.
    ///
    /// # Panics
    /// If a kernel is of another net.
    pub fn new(net: &Net, kernels: &[Kernel], with_history: bool) -> Self {
        let names = net.graph().nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), index));
        let nodes: HashMap<&str, usize> = names.collect();
        let steps: Vec<Step> = kernels.iter().map(|kernel| step(&nodes, kernel)).collect();
        let planned: HashSet<Step> = steps.iter().copied().collect();
        let scratch =
            |step: Step| if planned.contains(&step) { 0 } else { net.scratch(step).transient_len() };
        let schedule = Schedule::new(net.graph(), scratch);
        let lifetimes: Vec<Lifetime> = schedule.buffers.iter().map(|&(_, lifetime)| lifetime).collect();
        let placement = place(&lifetimes, |index| is_scratch(schedule.buffers[index].0));
        let order: HashMap<Step, usize> = schedule.steps.iter().copied().zip(0..).collect();
        let holes = steps.iter().map(|step| holes(&lifetimes, &placement, order[step])).collect();
        Self { base: persistent(net, with_history), end: placement.len, holes }
    }
}

impl Headroom for Room {
    /// The arena if no kernel had any workspace.
    fn least(&self) -> Bytes {
        bytes(self.base + self.end)
    }

    fn limit(&self, kernel: usize, budget: Bytes) -> Bytes {
        let end = (budget.0 as usize).saturating_sub(self.base);
        let free = |&(first, last): &(usize, usize)| last.min(end).saturating_sub(first);
        let largest = self.holes[kernel].iter().map(free).max().unwrap_or(0);
        bytes(largest / ALIGNMENT * ALIGNMENT)
    }

    fn budget(&self, kernel: usize, workspace: Bytes) -> Bytes {
        let len = (workspace.0 as usize).next_multiple_of(ALIGNMENT);
        let ends = self.holes[kernel].iter().filter(|(first, last)| last - first >= len);
        let end = ends.map(|(first, _)| first + len).min().expect("the last hole is open");
        bytes(self.base + self.end.max(end))
    }
}

/// Scratch is placed last: one step's never meets another's.
pub(super) fn is_scratch(buffer: Buffer) -> bool {
    matches!(buffer, Buffer::Scratch(_))
}

/// The step that runs a kernel; `nodes` are the net's, by name.
fn step(nodes: &HashMap<&str, usize>, kernel: &Kernel) -> Step {
    let node = nodes[kernel.name.as_str()];
    let pass = match kernel.id.op {
        ConvOp::Forward => Pass::Forward,
        ConvOp::BackwardData | ConvOp::BackwardFilter => Pass::Backward,
    };
    Step { node, pass }
}

/// Where nothing lies at step `at`, by rising offset.
fn holes(lifetimes: &[Lifetime], placement: &Placement, at: usize) -> Vec<(usize, usize)> {
    let alive = std::iter::zip(lifetimes, &placement.offsets)
        .filter(|(life, _)| life.len > 0 && life.first <= at && at <= life.last);
    let mut taken: Vec<(usize, usize)> =
        alive.map(|(life, &offset)| (offset, offset + life.len.next_multiple_of(ALIGNMENT))).collect();
    taken.sort_unstable();
    let (mut holes, mut end) = (Vec::new(), 0);
    for (first, last) in taken {
        if first > end {
            holes.push((end, first));
        }
        end = end.max(last);
    }
    holes.push((end, usize::MAX));
    holes
}

/// The part of the arena before transient buffers and segments, whatever plan is installed.
fn persistent(net: &Net, with_history: bool) -> usize {
    let layout = Layout::new(&[net], with_history);
    let transient = layout.nets[0].report.transient.0 as usize;
    layout.len - transient - net.segments_len().next_multiple_of(ALIGNMENT)
}

fn bytes(len: usize) -> Bytes {
    Bytes(len as u64)
}
