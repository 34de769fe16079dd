//! Plans for a budget of device memory: every kernel may have what is free at its own step.

use super::origin::Origin;
use crate::{Error, report::BudgetReport};
use planner::{Bytes, Fronts, Headroom, Kernel, Plan, PlanOptions, WorkspacePolicy};
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
        let report = BudgetReport::new(self.bytes, &self.room, origin.planning.table(), &plan);
        let report = report.map_err(|error| origin.explain(error.into(), self.kernels))?;
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
