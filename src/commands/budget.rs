//! Plans for a budget of device memory: every kernel may have what is free at its own step.

use super::origin::Origin;
use crate::{Error, report::BudgetReport};
use memory::{Outline, Room};
use planner::{Bytes, Fronts, Headroom, Kernel, Plan, PlanOptions};
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
        let fronts = Fronts::new(self.kernels, table, options).map_err(|e| origin.explain(e.into()))?;
        self.check(&fronts)?;
        let limits: Vec<Bytes> =
            (0..self.kernels.len()).map(|kernel| self.room.limit(kernel, self.bytes)).collect();
        let plan = origin.plan(self.kernels, Some(&limits), options)?;
        let report = BudgetReport::new(self.bytes, &self.room, origin.planning.table(), &plan);
        let report = report.map_err(|error| origin.explain(error.into()))?;
        Ok((plan, report))
    }

    /// Refuses a budget that is too small, and names the kernel that needs most.
    fn check(&self, fronts: &Fronts) -> Result<(), Error> {
        let (smallest, kernel) = fronts.smallest_budget(&self.room);
        if self.bytes >= smallest {
            return Ok(());
        }
        let kernel = kernel.map_or_else(|| "blobs and parameters".to_owned(), Kernel::to_string);
        let (budget, smallest) = (self.bytes.exact(), smallest.exact());
        Err(Error::Refused(format!(
            "--device-memory {budget} is too small: the smallest budget with a plan is {smallest}, set by {kernel}"
        )))
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
