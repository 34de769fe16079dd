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
        Self { base: ArenaLayout::base(&nets).0, end: beside.end(), holes }
    }
}

impl Headroom for Room {
    /// The arena if no kernel had any workspace.
    fn least(&self) -> Bytes {
        Bytes(self.base + self.end)
    }

    fn limit(&self, kernel: usize, budget: Bytes) -> Bytes {
        largest(&self.holes[kernel], budget.0.saturating_sub(self.base))
    }

    fn budget(&self, kernel: usize, workspace: Bytes) -> Bytes {
        Bytes(self.base + self.end.max(smallest_end(&self.holes[kernel], workspace)))
    }
}

/// The largest workspace that lies in one of `holes` before `end`.
pub(crate) fn largest(holes: &[(u64, u64)], end: u64) -> Bytes {
    let free = |&(first, last): &(u64, u64)| last.min(end).saturating_sub(first);
    let largest = holes.iter().map(free).max().unwrap_or(0);
    Bytes(largest / ALIGNMENT * ALIGNMENT)
}

/// Where the memory must end at least for `workspace` to lie in one of `holes`.
pub(crate) fn smallest_end(holes: &[(u64, u64)], workspace: Bytes) -> u64 {
    let len = workspace.0.next_multiple_of(ALIGNMENT);
    let ends = holes.iter().filter(|(first, last)| last - first >= len);
    ends.map(|(first, _)| first + len).min().expect("the last hole is open")
}

/// Everything but workspaces, in its places.
pub(crate) struct Beside {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) residences: Vec<Residence>,
    placement: Placement,
}

impl Beside {
    /// What comes and goes on the device in `schedule`, as [`ArenaLayout`] places it when scratch goes last.
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let transient = schedule.buffers.iter().filter(|(buffer, _)| !buffer.outlives());
        let (buffers, residences): (Vec<Buffer>, Vec<Residence>) = transient
            .flat_map(|(buffer, all)| all.iter().map(move |&one| (*buffer, one)))
            .filter(|(_, one)| one.place == Place::Device)
            .unzip();
        let placement = place(&residences, |index| matches!(buffers[index], Buffer::Scratch(_)));
        Self { buffers, residences, placement }
    }

    /// What it takes.
    pub(crate) fn end(&self) -> u64 {
        self.placement.len
    }

    /// Where nothing lies at action `at`, by rising offset: (first, one past the last), the one behind the last buffer
    /// open to the end.
    pub(crate) fn holes(&self, at: usize) -> Vec<(u64, u64)> {
        let alive = std::iter::zip(&self.residences, &self.placement.offsets)
            .filter(|(one, _)| one.bytes.0 > 0 && one.holds(at));
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
