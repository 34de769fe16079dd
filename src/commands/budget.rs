//! Plans for a budget of device memory: every kernel may have what is free at its own step.

use super::origin::Origin;
use crate::{
    Error,
    report::{BudgetReport, Step},
};
use planner::{Bytes, Configuration, DesirableSet, Fronts, Kernel, Plan, PlanOptions, WorkspacePolicy};
use trainer::{
    Net, NetError,
    net::{Layout, Room},
};

/// A budget, and what it leaves to the kernels of a net.
pub(super) struct Budget<'k> {
    bytes: Bytes,
    room: Room,
    kernels: &'k [Kernel],
    /// The most that any kernel may have.
    largest: Bytes,
}

impl<'k> Budget<'k> {
    pub(super) fn new(bytes: Bytes, net: &Net, kernels: &'k [Kernel]) -> Self {
        let room = Room::new(net, kernels, true);
        let largest = (0..kernels.len()).map(|kernel| room.limit(kernel, bytes)).max().unwrap_or_default();
        Self { bytes, room, kernels, largest }
    }

    /// What to measure for: no kernel may have more than the one that may have most.
    pub(super) fn options(&self, options: &PlanOptions) -> PlanOptions {
        PlanOptions { workspace_policy: WorkspacePolicy::Ws, limit: self.largest, ..options.clone() }
    }

    /// The plan, and what it is compared with.
    pub(super) fn plan(
        &self,
        origin: &mut Origin,
        options: &PlanOptions,
    ) -> Result<(Plan, BudgetReport), Error> {
        let table = origin.planning.table();
        let fronts =
            Fronts::new(self.kernels, table, options).map_err(|e| origin.explain(e.into(), self.kernels))?;
        self.check(&fronts)?;
        let limits: Vec<Bytes> =
            (0..self.kernels.len()).map(|kernel| self.room.limit(kernel, self.bytes)).collect();
        let plan = origin.plan_within(self.kernels, &limits, options)?;
        let report = self.report(&fronts, &limits, &plan, origin, options);
        Ok((plan, report))
    }

    /// Refuses a budget that is too small, and names the kernel that needs most.
    fn check(&self, fronts: &Fronts) -> Result<(), Error> {
        let (smallest, kernel) = self.needs(fronts, |set| set.iter().next());
        if self.bytes >= smallest {
            return Ok(());
        }
        let kernel = kernel.map_or_else(|| "blobs and parameters".to_owned(), Kernel::to_string);
        Err(Error::Budget { budget: self.bytes, smallest, kernel })
    }

    /// The budget in which every kernel can have the configuration that `choose` says, and the kernel that sets it, if it
    /// is not what lies beside workspaces.
    fn needs<'f>(
        &self,
        fronts: &'f Fronts,
        choose: impl Fn(&'f DesirableSet) -> Option<&'f Configuration>,
    ) -> (Bytes, Option<&Kernel>) {
        let mut needs = (self.room.least(), None);
        for (kernel, (_, set)) in fronts.iter().enumerate() {
            let workspace = choose(set).map(Configuration::workspace).unwrap_or_default();
            let budget = self.room.budget(kernel, workspace);
            if budget > needs.0 {
                needs = (budget, Some(&self.kernels[kernel]));
            }
        }
        needs
    }

    /// Planned time as a function of the budget: it falls where a kernel's room becomes enough for its next configuration.
    fn curve(&self, fronts: &Fronts) -> Vec<Step> {
        let sets = || fronts.iter().map(|(_, set)| set).enumerate();
        let budgets = sets().flat_map(|(kernel, set)| {
            set.iter().map(move |configuration| self.room.budget(kernel, configuration.workspace()))
        });
        let mut budgets: Vec<Bytes> = budgets.collect();
        budgets.sort_unstable();
        budgets.dedup();
        let mut curve: Vec<Step> = Vec::new();
        for budget in budgets {
            let time_ms = sets().map(|(kernel, set)| {
                let limit = self.room.limit(kernel, budget);
                set.fastest_within(limit).map(Configuration::time_ms)
            });
            let Some(time_ms) = time_ms.sum::<Option<f64>>() else { continue };
            if curve.last().is_none_or(|last| time_ms < last.time_ms) {
                curve.push(Step { limit_bytes: budget.0, time_ms });
            }
        }
        curve
    }

    fn report(
        &self,
        fronts: &Fronts,
        limits: &[Bytes],
        plan: &Plan,
        origin: &Origin,
        options: &PlanOptions,
    ) -> BudgetReport {
        let wr = equal_limit(fronts, limits);
        // Segments lie beside everything else, all the time.
        let total = self.bytes.saturating_sub(self.room.least());
        let divided = PlanOptions { workspace_policy: WorkspacePolicy::Wd, limit: total, ..options.clone() };
        let wd = planner::plan(self.kernels, origin.planning.table(), &divided);
        let arena = plan.kernels.iter().enumerate();
        let arena = arena.map(|(kernel, planned)| self.room.budget(kernel, planned.workspace)).max();
        BudgetReport {
            budget_bytes: self.bytes.0,
            arena_bytes: arena.unwrap_or_else(|| self.room.least()).0,
            without_workspace_bytes: self.room.least().0,
            smallest_limit_bytes: limits.iter().min().copied().unwrap_or_default().0,
            largest_limit_bytes: self.largest.0,
            time_ms: plan.time_ms,
            wr_limit_bytes: wr.map(|(limit, _)| limit.0),
            wr_time_ms: wr.map(|(_, time_ms)| time_ms),
            wd_total_bytes: total.0,
            wd_time_ms: wd.ok().map(|plan| plan.time_ms),
            unlimited_time_ms: fronts
                .iter()
                .filter_map(|(_, set)| set.iter().last())
                .map(Configuration::time_ms)
                .sum(),
            curve: self.curve(fronts),
            smallest_budget_bytes: self.needs(fronts, |set| set.iter().next()).0.0,
            enough_budget_bytes: self.needs(fronts, |set| set.iter().last()).0.0,
        }
    }
}

/// The largest limit that is the same for all kernels and makes each choose something within its own of `limits`, with the
/// time then. What a kernel chooses only grows with its limit.
fn equal_limit(fronts: &Fronts, limits: &[Bytes]) -> Option<(Bytes, f64)> {
    let curve = fronts.curve(WorkspacePolicy::Wr);
    let fits = |limit: Bytes| {
        let choices = fronts.iter().map(|(_, set)| set.fastest_within(limit));
        std::iter::zip(choices, limits).all(|(choice, limit)| choice.is_some_and(|c| c.workspace() <= *limit))
    };
    let fitting = curve.points().partition_point(|point| fits(point.limit));
    fitting.checked_sub(1).map(|last| (curve.points()[last].limit, curve.points()[last].time_ms))
}

/// Puts `plan` into `net` and makes sure that it keeps the budget.
pub(super) fn install(net: &mut Net, plan: &Plan, budget: Bytes) -> Result<(), Error> {
    net.install(plan)?;
    let arena = Layout::new(&[net], true).report.arena;
    if arena > budget {
        let message = format!("its arena takes {arena}, more than the {budget} that it was planned for");
        return Err(NetError::Net { net: net.name().to_owned(), message }.into());
    }
    Ok(())
}
