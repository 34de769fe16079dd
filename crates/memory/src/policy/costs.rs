//! How long the actions of an iteration take.

use crate::action::Action;
use crate::outline::Outline;
use planner::{Bytes, Cost, Curve};
use serde::{Deserialize, Serialize};

/// How long the actions of an iteration take, measured or estimated. Policies panic if there are fewer nodes than in the
/// outline, if a time is negative or not finite, or if a rate is that or 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Of every node, its forward and its backward pass.
    pub nodes: Vec<[PassCosts; 2]>,
    /// Of every node the time of a repeated forward pass, in milliseconds, where that is not the time of a first one:
    /// counts for nodes without convolution kernels; may be empty.
    pub again_ms: Vec<f64>,
    /// Time of the update, in milliseconds.
    pub update_ms: f64,
    /// Bytes per millisecond that are copied to the host and back, both directions at once.
    pub bytes_per_ms: [f64; 2],
    /// What a copy takes beside its bytes, and computation that has to wait for copies, even done ones, in milliseconds.
    pub launch_ms: f64,
    /// Most bytes of host memory that may be page-locked.
    pub host: Bytes,
}

/// How long a pass of a node takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassCosts {
    /// Whatever its workspace, in milliseconds.
    pub fixed_ms: f64,
    /// What its convolution kernels take beside that, one after the other in one workspace. Empty for a pass without.
    pub front: Curve,
}

impl PassCosts {
    /// Its time with its fastest workspace within `limit`, or else its least.
    pub fn time_ms(&self, limit: Bytes) -> f64 {
        self.fixed_ms + self.within(limit).map_or(0.0, |cost| cost.time_ms)
    }

    pub(super) fn has_kernels(&self) -> bool {
        !self.front.points().is_empty()
    }

    /// The fastest of its front within `limit`, or else the least; none without kernels.
    pub(super) fn within(&self, limit: Bytes) -> Option<&Cost> {
        self.front.within(limit).or(self.front.points().first())
    }
}

impl Costs {
    /// Panics unless they are costs of `outline`: with what is no number a search would never end.
    pub(super) fn check(&self, outline: &Outline) {
        assert!(self.nodes.len() >= outline.nodes.len(), "each node has costs");
        let passes = || self.nodes.iter().flatten();
        let kernels = passes().flat_map(|pass| pass.front.points()).map(|cost| cost.time_ms);
        let times = kernels.chain(passes().map(|pass| pass.fixed_ms)).chain(self.again_ms.iter().copied());
        let mut all = times.chain([self.update_ms, self.launch_ms]).chain(self.bytes_per_ms);
        let are_costs = all.all(|cost| cost >= 0.0 && cost.is_finite()) && !self.bytes_per_ms.contains(&0.0);
        assert!(are_costs, "costs are finite and at least 0, and rates above it");
    }

    /// The time of a pass with `workspace`, in milliseconds.
    pub(super) fn pass_ms(&self, action: Action, workspace: Bytes) -> f64 {
        let Some((node, pass)) = action.pass() else { return 0.0 };
        let costs = &self.nodes[node][pass];
        let again = matches!(action, Action::Recompute(_)) && !costs.has_kernels();
        let again_ms = self.again_ms.get(node).filter(|_| again);
        again_ms.copied().unwrap_or_else(|| costs.time_ms(workspace))
    }

    /// The workspaces of each node's passes: of the fastest within the limit of a node's pass, or else the least.
    pub(super) fn workspaces(&self, limit: impl Fn(usize, usize) -> Bytes) -> Vec<[Bytes; 2]> {
        let within = |(node, passes): (usize, &[PassCosts; 2])| {
            let costs = [0, 1].map(|pass| passes[pass].within(limit(node, pass)));
            costs.map(|cost| cost.map_or(Bytes::ZERO, |cost| cost.workspace))
        };
        self.nodes.iter().enumerate().map(within).collect()
    }

    /// The time of a copy to the host (`direction` 0) or back (1), in milliseconds.
    pub(super) fn copy_ms(&self, bytes: Bytes, direction: usize) -> f64 {
        self.launch_ms + bytes.0 as f64 / self.bytes_per_ms[direction]
    }

    /// Milliseconds of an iteration in any memory: every kernel's fastest, nothing copied or computed again.
    pub fn unlimited_ms(&self, outline: &Outline) -> f64 {
        let passes = outline.nodes.iter().zip(&self.nodes).flat_map(|(node, costs)| {
            costs.iter().enumerate().filter(|&(pass, _)| pass == 0 || node.backward).map(|(_, costs)| costs)
        });
        let update_ms = if outline.updates { self.update_ms } else { 0.0 };
        passes.map(|pass| pass.time_ms(Bytes::MAX)).sum::<f64>() + update_ms
    }
}
