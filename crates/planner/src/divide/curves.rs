//! What follows from all desirable sets of a net without planning again: curves and prices.

use super::hulls::relaxed_divisions;
use crate::choose::{Curve, Fronts};
use crate::model::{Bytes, Configuration, Cost, WorkspacePolicy};

impl Fronts {
    /// Time of the whole net as a function of the limit that `policy` takes.
    ///
    /// Under WR and WS these are all points where the time falls. Under WD there may be exponentially many; these are
    /// the ones on the lower convex hull, where the linear relaxation is itself a division and so proves it fastest.
    /// Between two of them the time of [`plan`](crate::plan()) lies on or below the staircase, and on or above the
    /// straight line from one to the next.
    pub fn curve(&self, policy: WorkspacePolicy) -> Curve {
        match policy {
            WorkspacePolicy::Wd => Curve::new(relaxed_divisions(&self.groups(Bytes::MAX))),
            _ => Curve::sum(&self.iter().map(|(_, set)| set.curve()).collect::<Vec<_>>()),
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

    /// What WD divides a total among: every kernel's configurations within `total`, each with its segment of the arena.
    pub(crate) fn groups(&self, total: Bytes) -> Vec<Vec<Cost>> {
        let cost = |chosen: &Configuration| Cost { workspace: chosen.workspace().aligned(), ..chosen.cost() };
        let within = |chosen: &&Configuration| chosen.workspace() <= total;
        self.iter().map(|(_, set)| set.iter().take_while(within).map(cost).collect()).collect()
    }

    /// The largest limit that is the same for all kernels and makes each choose something within its own of `limits`,
    /// with the time then. What a kernel chooses only grows with its limit.
    pub fn equal_limit(&self, limits: &[Bytes]) -> Option<Cost> {
        let curve = self.curve(WorkspacePolicy::Wr);
        let fits = |limit: Bytes| {
            let mut choices = self.iter().map(|(_, set)| set.fastest_within(limit)).zip(limits);
            choices.all(|(choice, own)| choice.is_some_and(|choice| choice.workspace() <= *own))
        };
        curve.points()[..curve.points().partition_point(|point| fits(point.workspace))].last().copied()
    }

    /// The time in any amount of memory.
    pub fn unlimited_time_ms(&self) -> f64 {
        self.iter().filter_map(|(_, set)| Some(set.last()?.time_ms())).fold(0.0, |sum, ms| sum + ms)
    }
}
