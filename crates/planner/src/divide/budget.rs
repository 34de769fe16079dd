//! What a budget of device memory allows, where each kernel may have what is free at its own step.

use crate::choose::{Curve, Fronts};
use crate::model::{Bytes, Configuration, Cost, DesirableSet, Kernel, WorkspacePolicy};

/// What lies beside workspaces in device memory, as a schedule says. Kernels are given by index, in the
/// order in which they are planned.
pub trait Headroom {
    /// What everything but workspaces takes: no budget is smaller.
    fn least(&self) -> Bytes;

    /// The largest workspace that `kernel` can have within `budget`; nothing if the budget is too small for the rest.
    fn limit(&self, kernel: usize, budget: Bytes) -> Bytes;

    /// The smallest budget in which `kernel` can have `workspace`.
    fn budget(&self, kernel: usize, workspace: Bytes) -> Bytes;
}

impl Fronts {
    /// The smallest budget with a plan, and the kernel that sets it, unless it is what lies beside workspaces.
    pub fn smallest_budget(&self, room: &dyn Headroom) -> (Bytes, Option<&Kernel>) {
        self.fitting(room, |set| set.iter().next())
    }

    /// The budget in which every kernel can have its fastest configuration.
    pub fn enough_budget(&self, room: &dyn Headroom) -> Bytes {
        self.fitting(room, |set| set.iter().last()).0
    }

    /// The budget in which every kernel can have the configuration that `choose` says, and the kernel that sets it.
    fn fitting(
        &self,
        room: &dyn Headroom,
        choose: impl Fn(&DesirableSet) -> Option<&Configuration>,
    ) -> (Bytes, Option<&Kernel>) {
        let mut needs = (room.least(), None);
        for (index, (kernel, set)) in self.iter().enumerate() {
            let workspace = choose(set).map(Configuration::workspace).unwrap_or_default();
            let budget = room.budget(index, workspace);
            if budget > needs.0 {
                needs = (budget, Some(kernel));
            }
        }
        needs
    }

    /// Planned time as a function of the budget: it falls where a kernel's room becomes enough for its next
    /// configuration.
    pub fn budget_curve(&self, room: &dyn Headroom) -> Curve {
        let sets = || self.iter().map(|(_, set)| set).enumerate();
        let mut budgets: Vec<Bytes> = sets()
            .flat_map(|(kernel, set)| set.iter().map(move |point| room.budget(kernel, point.workspace())))
            .collect();
        budgets.sort_unstable();
        budgets.dedup();
        Curve::new(budgets.into_iter().filter_map(|budget| {
            let time_ms = sets().map(|(kernel, set)| {
                let within = set.fastest_within(room.limit(kernel, budget));
                within.map(Configuration::time_ms)
            });
            Some(Cost { workspace: budget, time_ms: time_ms.sum::<Option<f64>>()? })
        }))
    }

    /// The largest limit that is the same for all kernels and makes each choose something within its own of `limits`,
    /// with the time then. What a kernel chooses only grows with its limit.
    pub fn equal_limit(&self, limits: &[Bytes]) -> Option<Cost> {
        let curve = self.curve(WorkspacePolicy::Wr);
        let fits = |limit: Bytes| {
            let choices = self.iter().map(|(_, set)| set.fastest_within(limit));
            std::iter::zip(choices, limits)
                .all(|(choice, limit)| choice.is_some_and(|choice| choice.workspace() <= *limit))
        };
        let fitting = curve.points().partition_point(|point| fits(point.workspace));
        fitting.checked_sub(1).map(|last| curve.points()[last])
    }

    /// The time in any amount of memory.
    pub fn unlimited_time_ms(&self) -> f64 {
        self.iter().filter_map(|(_, set)| set.iter().last()).map(Configuration::time_ms).sum()
    }
}
