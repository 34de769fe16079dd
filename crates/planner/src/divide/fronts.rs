//! All desirable sets of a net, and what follows from them without planning again: curves and prices.

use super::{
    hulls::relaxed_divisions,
    wd::{alternatives, segment},
};
use crate::{
    choose::{Curve, PlanError, PlanOptions, Problem},
    model::{Bytes, Configuration, Cost, DesirableSet, Kernel, WorkspacePolicy},
    table::CostTable,
};
use std::cmp::Reverse;

/// The desirable set of every kernel, unlimited: everything that any workspace policy chooses from under any limit.
#[derive(Clone, Debug)]
pub struct Fronts {
    kernels: Vec<Kernel>,
    /// Of the distinct kernels.
    sets: Vec<DesirableSet>,
    /// For every kernel its set.
    of_kernel: Vec<usize>,
}

impl Fronts {
    /// The desirable sets of `kernels`. Of `options` only the batch-size policy and the demands on accuracy and
    /// determinism count.
    ///
    /// # Errors
    /// When a kernel has an empty mini-batch, lacks a measurement that the batch-size policy needs, or has no admitted
    /// algorithm.
    pub fn new(kernels: &[Kernel], table: &CostTable, options: &PlanOptions) -> Result<Self, PlanError> {
        let problem = Problem::new(kernels, table, options)?;
        let mut sets = Vec::with_capacity(problem.distinct.len());
        for candidates in &problem.distinct {
            let set = candidates.sweep().desirable_set(Bytes::MAX);
            if set.is_empty() {
                return Err(candidates.infeasible(Bytes::MAX, options));
            }
            sets.push(set);
        }
        Ok(Self { kernels: kernels.to_vec(), sets, of_kernel: problem.of_kernel })
    }

    /// Every kernel with its desirable set, in the order given.
    pub fn iter(&self) -> impl Iterator<Item = (&Kernel, &DesirableSet)> {
        let sets = self.of_kernel.iter().map(|&index| &self.sets[index]);
        std::iter::zip(&self.kernels, sets)
    }

    /// Time of the whole net as a function of the limit that `policy` takes.
    ///
    /// Under WR and WS these are all points where the time falls. Under WD there may be exponentially many; these are
    /// the ones on the lower convex hull, where the linear relaxation is itself a division and so proves it fastest.
    /// Between two of them the time of [`plan`](crate::plan()) lies on or below the staircase, and on or above the
    /// straight line from one to the next.
    pub fn curve(&self, policy: WorkspacePolicy) -> Curve {
        match policy {
            WorkspacePolicy::Wr | WorkspacePolicy::Ws => self.curve_of_equal_limits(),
            WorkspacePolicy::Wd => Curve::new(relaxed_divisions(&self.groups())),
        }
    }

    /// The price of a MiB for the whole net: milliseconds saved by each MiB more, at best. Under WD the dual value of
    /// the total in the linear relaxation; under WR and WS every kernel gets the MiB, and it is
    /// [`Curve::price_ms_per_mib`]. Infinite where no plan fits.
    pub fn price_ms_per_mib(&self, policy: WorkspacePolicy, limit: Bytes) -> f64 {
        let curve = self.curve(policy);
        match policy {
            WorkspacePolicy::Wr | WorkspacePolicy::Ws => curve.price_ms_per_mib(limit),
            WorkspacePolicy::Wd => curve.slope_ms_per_mib(limit),
        }
    }

    /// The smallest limit with a plan, and the kernel that sets it: under WD the one that takes the largest part of the
    /// smallest total. `None` if there are no kernels.
    pub fn smallest_limit(&self, policy: WorkspacePolicy) -> Option<(Bytes, &Kernel)> {
        let is_divided = policy == WorkspacePolicy::Wd;
        let least = |kernel: usize| {
            let first = self.sets[self.of_kernel[kernel]].iter().next();
            let workspace = first.map(Configuration::workspace).unwrap_or_default();
            if is_divided { segment(workspace) } else { workspace }
        };
        let kernels = 0..self.kernels.len();
        let neediest = kernels.clone().max_by_key(|&kernel| (least(kernel), Reverse(kernel)))?;
        let limit = if is_divided { kernels.map(least).sum() } else { least(neediest) };
        Some((limit, &self.kernels[neediest]))
    }

    /// What WD divides among.
    fn groups(&self) -> Vec<Vec<Cost>> {
        self.of_kernel.iter().map(|&index| alternatives(&self.sets[index])).collect()
    }

    /// Every kernel has the same limit: the drops of all kernels in order of the limit.
    fn curve_of_equal_limits(&self) -> Curve {
        let mut drops: Vec<Cost> = Vec::new();
        let mut time_ms = 0.0;
        for (_, set) in self.iter() {
            let curve = set.curve();
            time_ms += curve.points()[0].time_ms;
            drops.extend(curve.points().windows(2).map(|pair| Cost {
                workspace: pair[1].workspace,
                time_ms: pair[0].time_ms - pair[1].time_ms,
            }));
        }
        drops.sort_by_key(|drop| drop.workspace);
        let Some((start, _)) = self.smallest_limit(WorkspacePolicy::Wr) else { return Curve::default() };
        let first = Cost { workspace: start, time_ms };
        let falls = drops.into_iter().map(|drop| {
            time_ms -= drop.time_ms;
            // What falls below the smallest feasible limit has fallen when the curve begins.
            Cost { workspace: drop.workspace.max(start), time_ms }
        });
        Curve::new(std::iter::once(first).chain(falls))
    }
}
