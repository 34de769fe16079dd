//! How much workspace each kernel can have under a budget of device memory: what is free when it runs.
//!
//! Blobs and gradients come and go in the course of an iteration. A limit that is the same for all kernels has to fit
//! the action where most is alive; here each kernel gets what its own action leaves free. Everything but workspaces is
//! placed first and stays where it is; a workspace then lies in the largest hole of its action, so that what is
//! promised here is what [`ArenaLayout`] does. Workspaces never meet, as no two actions compute at once.

use crate::{
    layout::ArenaLayout,
    outline::{Outline, Scratch},
    placement::{Placement, place},
    schedule::{Action, Buffer, Place, Residence, Schedule},
};
use planner::{ARENA_ALIGNMENT as ALIGNMENT, Bytes, ConvOp, Headroom, Kernel};
use std::collections::HashMap;

/// What the buffers of a net leave free at the action of every kernel. Lengths are in bytes.
pub struct Room {
    /// What outlives an iteration: parameters, gradients, history, constant inputs.
    base: u64,
    /// The end of everything that is neither persistent nor a workspace.
    end: u64,
    /// Of every kernel the holes between the buffers that are alive at its action: (first, one past the last), the one
    /// behind the last buffer open to the end.
    holes: Vec<Vec<(u64, u64)>>,
}

impl Room {
    /// The room that net number `net` of `nets`, which share an arena, leaves to `kernels`, which are its own, in any
    /// order.
    ///
    /// # Panics
    /// If a kernel is of another net.
    pub fn new(nets: &[Outline], net: usize, kernels: &[Kernel]) -> Self {
        let mut nets: Vec<Outline> = nets.to_vec();
        let names = nets[net].nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index));
        let nodes: HashMap<String, usize> = names.collect();
        let steps: Vec<(usize, usize)> = kernels
            .iter()
            .map(|kernel| (nodes[&kernel.name], usize::from(kernel.id.op != ConvOp::Forward)))
            .collect();
        for &(node, pass) in &steps {
            nets[net].nodes[node].scratch[pass] = Scratch::default();
        }
        let schedule = Schedule::plain(&nets[net]);
        let beside = Beside::new(&schedule);
        let order: HashMap<Action, usize> = schedule.actions.iter().copied().zip(0..).collect();
        let action = |&(node, pass): &(usize, usize)| [Action::Forward(node), Action::Backward(node)][pass];
        let holes = steps.iter().map(|step| beside.holes(order[&action(step)])).collect();
        Self { base: ArenaLayout::base(&nets).0, end: beside.placement.len, holes }
    }
}

impl Headroom for Room {
    /// The arena if no kernel had any workspace.
    fn least(&self) -> Bytes {
        Bytes(self.base + self.end)
    }

    fn limit(&self, kernel: usize, budget: Bytes) -> Bytes {
        largest(&self.holes[kernel], budget.saturating_sub(Bytes(self.base)))
    }

    fn budget(&self, kernel: usize, workspace: Bytes) -> Bytes {
        let len = workspace.0.next_multiple_of(ALIGNMENT);
        let ends = self.holes[kernel].iter().filter(|(first, last)| last - first >= len);
        let end = ends.map(|(first, _)| first + len).min().expect("the last hole is open");
        Bytes(self.base + self.end.max(end))
    }
}

/// Everything but workspaces, in its places.
pub(crate) struct Beside {
    residences: Vec<Residence>,
    placement: Placement,
}

impl Beside {
    /// As [`ArenaLayout`] places it when scratch goes last.
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let (buffers, residences) = schedule.transient(Place::Device);
        let placement = place(&residences, |index| matches!(buffers[index], Buffer::Scratch(_)));
        Self { residences, placement }
    }

    /// Where nothing lies at action `at`, by rising offset: (first, one past the last), the one behind the last buffer
    /// open to the end.
    pub(crate) fn holes(&self, at: usize) -> Vec<(u64, u64)> {
        let alive = std::iter::zip(&self.residences, &self.placement.offsets);
        let alive = alive.filter(|(one, _)| one.bytes.0 > 0 && one.holds(at));
        let mut taken: Vec<(u64, u64)> =
            alive.map(|(one, &offset)| (offset, offset + one.bytes.0.next_multiple_of(ALIGNMENT))).collect();
        taken.sort_unstable();
        let (mut holes, mut end) = (Vec::new(), 0);
        for (first, last) in taken {
            if first > end {
                holes.push((end, first));
            }
            end = end.max(last);
        }
        holes.push((end, u64::MAX));
        holes
    }
}

/// The largest of `holes` before `end`.
pub(crate) fn largest(holes: &[(u64, u64)], end: Bytes) -> Bytes {
    let free = |&(first, last): &(u64, u64)| last.min(end.0).saturating_sub(first);
    Bytes(holes.iter().map(free).max().unwrap_or(0) / ALIGNMENT * ALIGNMENT)
}
