//! How much workspace each kernel can have under a budget of device memory: what is free when it runs.
//!
//! Blobs and gradients come and go in the course of an iteration. A limit that is the same for all kernels has to fit
//! the action where most is alive; here each kernel gets what its own action leaves free. Where all of them can have
//! their fastest in whatever places, they have. Else everything but workspaces is placed first and stays where it is,
//! and a workspace lies in the largest hole of its action: both are what [`ArenaLayout`] does. They never meet.

use crate::action::{Action, Buffer, Place, Residence};
use crate::layout::ArenaLayout;
use crate::outline::Outline;
use crate::placement::{Placement, alive, place};
use crate::schedule::Schedule;
use planner::{
    ARENA_ALIGNMENT as ALIGNMENT, Bytes, Configuration, ConvOp, Cost, Curve, DesirableSet, Fronts, Kernel,
};
use std::collections::HashMap;

/// What the buffers of a net leave free at the action of every kernel. Lengths are in bytes.
pub struct Room {
    /// The arena without the transient part ([`ArenaLayout::base`]).
    base: u64,
    /// Everything that is neither persistent nor a workspace.
    beside: Beside,
    /// Of every kernel its action, and what is alive then beside its workspace.
    actions: Vec<(usize, u64)>,
}

impl Room {
    /// The room that net number `net` of `nets`, which share an arena, leaves to its `kernels`, in any order.
    ///
    /// # Panics
    /// If a kernel is of another net.
    pub fn new(nets: &[Outline], net: usize, kernels: &[Kernel]) -> Self {
        let names = nets[net].nodes.iter().map(|node| node.name.as_str());
        let nodes: HashMap<&str, usize> = names.zip(0..).collect();
        let mut nets: Vec<Outline> = nets.to_vec();
        let actions = kernels.iter().map(|kernel| {
            let (node, pass) = (nodes[&*kernel.name], usize::from(kernel.id.op != ConvOp::Forward));
            let own = &mut nets[net].nodes[node];
            (own.scratch[pass], own.keeps_scratch) = (Bytes::ZERO, false);
            [Action::Forward(node), Action::Backward(node)][pass]
        });
        let actions: Vec<Action> = actions.collect();
        let schedule = Schedule::plain(&nets[net]);
        let order: HashMap<Action, usize> = schedule.actions.iter().copied().zip(0..).collect();
        let beside = Beside::new(&schedule);
        let alive = alive(beside.residences.iter());
        let actions = actions.iter().map(|action| order[action]).map(|at| (at, alive[at])).collect();
        Self { base: ArenaLayout::base(&nets).0, beside, actions }
    }

    /// The arena if no kernel had any workspace and all else is placed first.
    pub fn least(&self) -> Bytes {
        Bytes(self.base + self.beside.placement.len)
    }

    /// What `budget` leaves beside what is alive when a kernel, by its index, runs: no workspace is larger.
    pub fn free(&self, kernel: usize, budget: Bytes) -> Bytes {
        Bytes(budget.0.saturating_sub(self.base + self.actions[kernel].1) / ALIGNMENT * ALIGNMENT)
    }

    /// The largest workspace that a kernel can have in `budget`, at least [`Room::least`], where all else is placed first.
    pub fn limit(&self, kernel: usize, budget: Bytes) -> Bytes {
        largest(&self.beside.holes(self.actions[kernel].0), budget.saturating_sub(Bytes(self.base)))
    }

    /// What each kernel may have within `budget`, so that all can have the fastest of `fronts` that this admits: those of
    /// a budget below [`Room::smallest_budget`] can take more than it.
    pub fn limits(&self, fronts: &Fronts, budget: Bytes) -> Vec<Bytes> {
        let limit = if self.enough_budget(fronts) <= budget { Self::free } else { Self::limit };
        (0..self.actions.len()).map(|kernel| limit(self, kernel, budget)).collect()
    }

    /// The arena where each kernel has so much workspace.
    pub fn takes(&self, workspaces: &[Bytes]) -> Bytes {
        let at = self.actions.iter().zip(workspaces).map(|(&(at, _), &workspace)| (at, workspace));
        Bytes(self.base) + self.beside.takes(&at.collect::<Vec<_>>(), Bytes::ZERO)
    }

    /// The smallest budget in which a kernel can have `workspace` where all else is placed first.
    pub fn budget(&self, kernel: usize, workspace: Bytes) -> Bytes {
        self.least().max(Bytes(self.base + lowest_end(&self.beside.holes(self.actions[kernel].0), workspace)))
    }

    /// The smallest budget with a plan of `fronts`, those of the kernels, and the kernel that sets it, if one does.
    pub fn smallest_budget<'f>(&self, fronts: &'f Fronts) -> (Bytes, Option<&'f Kernel>) {
        let mut needs = (self.least(), None);
        for (index, (kernel, set)) in fronts.iter().enumerate() {
            let budget = self.budget(index, set.first().map_or(Bytes::ZERO, Configuration::workspace));
            if budget > needs.0 {
                needs = (budget, Some(kernel));
            }
        }
        let enough = self.enough_budget(fronts);
        if enough < needs.0 { (enough, None) } else { needs }
    }

    /// The budget in which every kernel can have its fastest configuration.
    pub fn enough_budget(&self, fronts: &Fronts) -> Bytes {
        let fastest = fronts.iter().map(|(_, set)| set.last().map_or(Bytes::ZERO, Configuration::workspace));
        self.takes(&fastest.collect::<Vec<_>>())
    }

    /// Planned time over the budget: it falls where a kernel's room becomes enough for its next configuration, and where
    /// all of them can have their fastest.
    pub fn budget_curve(&self, fronts: &Fronts) -> Curve {
        let of_kernel = |(index, (_, set)): (usize, (&Kernel, &DesirableSet))| {
            let budget = |point: &Configuration| self.budget(index, point.workspace());
            Curve::new(set.iter().map(|point| Cost { workspace: budget(point), ..point.cost() }))
        };
        let sum = Curve::sum(&fronts.iter().enumerate().map(of_kernel).collect::<Vec<_>>());
        let fastest = Cost { workspace: self.enough_budget(fronts), time_ms: fronts.unlimited_time_ms() };
        let dearer = sum.points().iter().copied().take_while(|cost| cost.workspace < fastest.workspace);
        Curve::new(dearer.chain([fastest]))
    }
}

/// Everything but workspaces, in its places.
pub(crate) struct Beside {
    buffers: Vec<Buffer>,
    residences: Vec<Residence>,
    pub(crate) placement: Placement,
}

impl Beside {
    /// As [`ArenaLayout`] places it when scratch goes last.
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let (buffers, residences) = schedule.transient(Place::Device);
        let placement = place(&residences, |index| matches!(buffers[index], Buffer::Scratch(_)), 0);
        Self { buffers, residences, placement }
    }

    /// What it takes with these workspaces, by action, in the better way of [`ArenaLayout`], or no more than `enough`.
    pub(crate) fn takes(&self, at: &[(usize, Bytes)], enough: Bytes) -> Bytes {
        let ends = at.iter().map(|&(at, workspace)| lowest_end(&self.holes(at), workspace));
        let last = Bytes(ends.fold(self.placement.len, u64::max));
        if last <= enough {
            return last;
        }
        let mut residences = self.residences.clone();
        for &(at, workspace) in at {
            let scratch = self.buffers.binary_search(&Buffer::Scratch(at)).expect("every pass has some");
            residences[scratch].bytes = residences[scratch].bytes.max(workspace);
        }
        last.min(Bytes(place(&residences, |_| false, enough.0).len))
    }

    /// Where nothing lies at action `at`, by rising offset: (first, one past the last), the last one open to the end.
    pub(crate) fn holes(&self, at: usize) -> Vec<(u64, u64)> {
        let alive = std::iter::zip(&self.residences, &self.placement.offsets);
        let alive = alive.filter(|(one, _)| one.bytes.0 > 0 && one.holds(at));
        let taken = alive.map(|(one, &offset)| (offset, offset + one.bytes.aligned().0));
        let mut taken: Vec<(u64, u64)> = taken.chain([(0, 0), (u64::MAX, u64::MAX)]).collect();
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
    let len = workspace.aligned().0;
    let large = holes.iter().find(|(first, last)| last - first >= len);
    large.expect("the last hole is open").0 + len
}
