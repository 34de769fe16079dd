//! How much workspace each kernel can have under a budget of device memory: what is free when it runs.
//!
//! Blobs and gradients come and go in the course of an iteration. A limit that is the same for all kernels has to fit
//! the action where most is alive; here each kernel gets what its own action leaves free. Everything but workspaces is
//! placed first and stays where it is; a workspace then lies in the largest hole of its action, so that what is
//! promised here is what [`ArenaLayout`] does. Workspaces never meet, as no two actions compute at once.

use crate::action::{Action, Buffer, Place, Residence};
use crate::layout::ArenaLayout;
use crate::outline::{Outline, Scratch};
use crate::placement::{Placement, place};
use crate::schedule::Schedule;
use planner::{
    ARENA_ALIGNMENT as ALIGNMENT, Bytes, Configuration, ConvOp, Cost, Curve, DesirableSet, Fronts, Kernel,
};
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
    /// The room that net number `net` of `nets`, which share an arena, leaves to its `kernels`, in any order.
    ///
    /// # Panics
    /// If a kernel is of another net.
    pub fn new(nets: &[Outline], net: usize, kernels: &[Kernel]) -> Self {
        let mut nets: Vec<Outline> = nets.to_vec();
        let names = nets[net].nodes.iter().map(|node| node.name.clone());
        let nodes: HashMap<String, usize> = names.zip(0..).collect();
        let pass = |kernel: &Kernel| usize::from(kernel.id.op != ConvOp::Forward);
        let steps = kernels.iter().map(|kernel| (nodes[&kernel.name], pass(kernel)));
        let steps: Vec<(usize, usize)> = steps.collect();
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

    /// The arena if no kernel had any workspace: no budget is smaller.
    pub fn least(&self) -> Bytes {
        Bytes(self.base + self.end)
    }

    /// The largest workspace that a kernel, by its index, can have within `budget`; 0 if that lacks room for the rest.
    pub fn limit(&self, kernel: usize, budget: Bytes) -> Bytes {
        largest(&self.holes[kernel], budget.saturating_sub(Bytes(self.base)))
    }

    /// The smallest budget in which a kernel can have `workspace`.
    pub fn budget(&self, kernel: usize, workspace: Bytes) -> Bytes {
        Bytes(self.base + self.end.max(lowest_end(&self.holes[kernel], workspace)))
    }

    /// The smallest budget with a plan of `fronts`, those of the kernels, and the kernel that sets it, unless it is what
    /// lies beside workspaces.
    pub fn smallest_budget<'f>(&self, fronts: &'f Fronts) -> (Bytes, Option<&'f Kernel>) {
        self.fitting(fronts, |set| set.first())
    }

    /// The budget in which every kernel can have its fastest configuration.
    pub fn enough_budget(&self, fronts: &Fronts) -> Bytes {
        self.fitting(fronts, |set| set.last()).0
    }

    /// The budget in which every kernel can have the configuration that `choose` says, and the kernel that sets it.
    fn fitting<'f>(
        &self,
        fronts: &'f Fronts,
        choose: impl Fn(&DesirableSet) -> Option<&Configuration>,
    ) -> (Bytes, Option<&'f Kernel>) {
        let mut needs = (self.least(), None);
        for (index, (kernel, set)) in fronts.iter().enumerate() {
            let workspace = choose(set).map(Configuration::workspace).unwrap_or_default();
            let budget = self.budget(index, workspace);
            if budget > needs.0 {
                needs = (budget, Some(kernel));
            }
        }
        needs
    }

    /// Planned time over the budget: it falls where a kernel's room becomes enough for its next configuration.
    pub fn budget_curve(&self, fronts: &Fronts) -> Curve {
        let of_kernel = |(index, (_, set)): (usize, (&Kernel, &DesirableSet))| {
            let budget = |point: &Configuration| self.budget(index, point.workspace());
            Curve::new(set.iter().map(|point| Cost { workspace: budget(point), ..point.cost() }))
        };
        Curve::sum(&fronts.iter().enumerate().map(of_kernel).collect::<Vec<_>>())
    }
}

/// Everything but workspaces, in its places.
pub(crate) struct Beside {
    residences: Vec<Residence>,
    pub(crate) placement: Placement,
}

impl Beside {
    /// As [`ArenaLayout`] places it when scratch goes last.
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let (buffers, residences) = schedule.transient(Place::Device);
        let placement = place(&residences, |index| matches!(buffers[index], Buffer::Scratch(_)), 0);
        Self { residences, placement }
    }

    /// Where nothing lies at action `at`, by rising offset: (first, one past the last), the one behind the last buffer
    /// open to the end.
    pub(crate) fn holes(&self, at: usize) -> Vec<(u64, u64)> {
        let alive = std::iter::zip(&self.residences, &self.placement.offsets);
        let alive = alive.filter(|(one, _)| one.bytes.0 > 0 && one.holds(at));
        let mut taken: Vec<(u64, u64)> =
            alive.map(|(one, &offset)| (offset, offset + one.bytes.0.next_multiple_of(ALIGNMENT))).collect();
        taken.extend([(0, 0), (u64::MAX, u64::MAX)]);
        taken.sort_unstable();
        taken.windows(2).map(|pair| (pair[0].1, pair[1].0)).filter(|(first, last)| first < last).collect()
    }
}

/// The largest of `holes` before `end`.
pub(crate) fn largest(holes: &[(u64, u64)], end: Bytes) -> Bytes {
    let free = |&(first, last): &(u64, u64)| last.min(end.0).saturating_sub(first);
    Bytes(holes.iter().map(free).max().unwrap_or(0) / ALIGNMENT * ALIGNMENT)
}

/// Where `workspace` ends in the lowest of `holes` that it fits in.
pub(crate) fn lowest_end(holes: &[(u64, u64)], workspace: Bytes) -> u64 {
    let len = workspace.0.next_multiple_of(ALIGNMENT);
    let mut large = holes.iter().filter(|(first, last)| last - first >= len);
    large.next().expect("the last hole is open").0 + len
}
