//! Plans for a budget of device memory: every kernel may have what is free at its own step.

use super::origin::Origin;
use crate::{
    Error,
    report::{BudgetReport, steps},
};
use memory::{Outline, Room};
use planner::{Bytes, Fronts, Headroom, Kernel, Plan, PlanOptions, WorkspacePolicy};
use trainer::NetError;

/// A budget, and what it leaves to the kernels of a net.
pub(super) struct Budget<'k> {
    bytes: Bytes,
    room: Room,
    kernels: &'k [Kernel],
    /// The most that any kernel may have.
    largest: Bytes,
}

impl<'k> Budget<'k> {
    /// For net number `net` of `nets`, which share an arena.
    pub(super) fn new(bytes: Bytes, nets: &[Outline], net: usize, kernels: &'k [Kernel]) -> Self {
        let room = Room::new(nets, net, kernels);
        let largest = (0..kernels.len()).map(|kernel| room.limit(kernel, bytes)).max().unwrap_or_default();
        Self { bytes, room, kernels, largest }
    }

    /// The most that any kernel may have: what to measure for.
    pub(super) fn largest(&self) -> Bytes {
        self.largest
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
        let plan = origin.plan(self.kernels, Some(&limits), options)?;
        let report = self.report(&fronts, &limits, &plan, origin, options);
        Ok((plan, report))
    }

    /// Refuses a budget that is too small, and names the kernel that needs most.
    fn check(&self, fronts: &Fronts) -> Result<(), Error> {
        let (smallest, kernel) = fronts.smallest_budget(&self.room);
        if self.bytes >= smallest {
            return Ok(());
        }
        let kernel = kernel.map_or_else(|| "blobs and parameters".to_owned(), Kernel::to_string);
        Err(Error::Budget { budget: self.bytes, smallest, kernel })
    }

    fn report(
        &self,
        fronts: &Fronts,
        limits: &[Bytes],
        plan: &Plan,
        origin: &Origin,
        options: &PlanOptions,
    ) -> BudgetReport {
        let wr = fronts.equal_limit(limits);
        let table = origin.planning.table();
        // Segments lie beside everything else, all the time.
        let total = self.bytes.saturating_sub(self.room.least());
        let divided = PlanOptions { workspace_policy: WorkspacePolicy::Wd, limit: total, ..options.clone() };
        let wd = planner::plan(self.kernels, table, &divided);
        let arena = plan.kernels.iter().enumerate();
        let arena = arena.map(|(kernel, planned)| self.room.budget(kernel, planned.workspace)).max();
        let curve = fronts.budget_curve(&self.room);
        BudgetReport {
            budget_bytes: self.bytes.0,
            arena_bytes: arena.unwrap_or_else(|| self.room.least()).0,
            without_workspace_bytes: self.room.least().0,
            smallest_limit_bytes: limits.iter().min().copied().unwrap_or_default().0,
            largest_limit_bytes: self.largest.0,
            time_ms: plan.time_ms,
            wr_limit_bytes: wr.map(|wr| wr.workspace.0),
            wr_time_ms: wr.map(|wr| wr.time_ms),
            wd_total_bytes: total.0,
            wd_time_ms: wd.ok().map(|plan| plan.time_ms),
            unlimited_time_ms: fronts.unlimited_time_ms(),
            price_ms_per_mib: curve.price_ms_per_mib(self.bytes),
            curve: steps(&curve),
            smallest_budget_bytes: fronts.smallest_budget(&self.room).0.0,
            enough_budget_bytes: fronts.enough_budget(&self.room).0,
        }
    }
}

/// Makes sure that a plan keeps the budget that it was made for.
pub(super) fn check(net: &str, arena: Bytes, budget: Bytes) -> Result<(), Error> {
    if arena <= budget {
        return Ok(());
    }
    let message = format!("its arena takes {arena}, more than the {budget} that it was planned for");
    Err(NetError::Net { net: net.to_owned(), message }.into())
}
