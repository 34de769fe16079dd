//! What a budget of device memory allows: plans, and mini-batches.

use crate::number::{ms, times};
use crate::table::Table;
use memory::Room;
use planner::{Bytes, Curve, Fronts, Plan, PlanOptions, WorkspacePolicy};
use serde::Serialize;
use std::fmt;

/// A plan for a budget of device memory, beside what other policies make of the same memory.
#[derive(Clone, Debug, Serialize)]
pub struct BudgetReport {
    /// The budget.
    pub budget: Bytes,
    /// What the plan takes of it.
    pub arena: Bytes,
    /// What the net takes without any workspace.
    pub without_workspace: Bytes,
    /// The least that any kernel may have at its step.
    pub smallest_limit: Bytes,
    /// The most.
    pub largest_limit: Bytes,
    /// Planned time of all kernels, each limited by what is free at its own step.
    pub time_ms: f64,
    /// WR: the largest limit, the same for all kernels, that keeps the budget where all else lies as in this plan.
    pub wr_limit: Option<Bytes>,
    /// The time under it.
    pub wr_time_ms: Option<f64>,
    /// WD: the total that is left beside everything else.
    pub wd_total: Bytes,
    /// The time if it is divided among all kernels, if it suffices.
    pub wd_time_ms: Option<f64>,
    /// The time in any amount of memory.
    pub unlimited_time_ms: f64,
    /// The time as a function of the budget: where it falls, and to what.
    pub curve: Curve,
    /// Milliseconds that each MiB more could save at best.
    pub price_ms_per_mib: f64,
    /// The smallest budget with a plan.
    pub smallest_budget: Bytes,
    /// The budget below which time begins to suffer.
    pub enough_budget: Bytes,
}

impl BudgetReport {
    /// Describes `plan`, which was made of `fronts` with what `room` leaves to each kernel within `budget`.
    pub fn new(budget: Bytes, room: &Room, fronts: &Fronts, plan: &Plan) -> Self {
        let limits: Vec<Bytes> = plan.kernels.iter().map(|planned| planned.available).collect();
        let enough_budget = room.enough_budget(fronts);
        let wr = match enough_budget <= budget {
            true => fronts.curve(WorkspacePolicy::Wr).points().last().copied(),
            false => fronts.equal_limit(&limits),
        };
        // Segments lie beside everything else, all the time.
        let wd_total = budget.saturating_sub(room.least());
        let workspace_policy = WorkspacePolicy::Wd;
        let divided = PlanOptions { workspace_policy, limit: wd_total, ..plan.options.clone() };
        let taken: Vec<Bytes> = plan.kernels.iter().map(|planned| planned.workspace).collect();
        let curve = room.budget_curve(fronts);
        Self {
            budget,
            arena: room.takes(&taken),
            without_workspace: room.least(),
            smallest_limit: limits.iter().min().copied().unwrap_or_default(),
            largest_limit: limits.iter().max().copied().unwrap_or_default(),
            time_ms: plan.time_ms,
            wr_limit: wr.map(|wr| wr.workspace),
            wr_time_ms: wr.map(|wr| wr.time_ms),
            wd_total,
            wd_time_ms: fronts.plan(&divided).ok().map(|plan| plan.time_ms),
            unlimited_time_ms: fronts.unlimited_time_ms(),
            price_ms_per_mib: curve.price_ms_per_mib(budget),
            curve,
            smallest_budget: room.smallest_budget(fronts).0,
            enough_budget,
        }
    }
}

impl fmt::Display for BudgetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, arena, without_workspace, smallest_limit, largest_limit, .. } = self;
        write!(f, "Device memory {budget}: the plan takes {arena}, {without_workspace} without workspace; ")?;
        let limits = format!("{smallest_limit} to {largest_limit}");
        writeln!(f, "each kernel may have what is free at its own step, {limits}")?;
        let mut table = Table::new(["in the same memory", ">ms", ">this is faster by"]);
        table.row(["WS by the schedule (this plan)", &ms(self.time_ms), ""]);
        let wr = match self.wr_limit {
            Some(limit) => format!("WR, {limit} for each kernel, in the same places"),
            None => "WR: no limit for all fits".to_owned(),
        };
        let wd = format!("WD, {} divided among all", self.wd_total);
        let unlimited = ("any amount of memory".to_owned(), Some(self.unlimited_time_ms));
        for (name, time_ms) in [(wr, self.wr_time_ms), (wd, self.wd_time_ms), unlimited] {
            let gain = times(time_ms.map(|time_ms| time_ms / self.time_ms).filter(|gain| !gain.is_nan()));
            table.row([name, time_ms.map_or_else(|| "does not fit".to_owned(), ms), gain]);
        }
        let [enough, smallest] = [self.enough_budget, self.smallest_budget].map(Bytes::exact);
        write!(f, "{table}\n  time suffers below {enough}; not everything fits below {smallest}")
    }
}

/// What mini-batches bring in a budget of device memory.
#[derive(Clone, Debug, Serialize)]
pub struct BatchReport {
    /// The policy for memory.
    pub policy: String,
    /// The budget.
    pub budget: Bytes,
    /// The largest mini-batch found that it holds.
    pub largest: usize,
    /// The largest of those below whose samples a second are at most a tenth fewer than the most.
    pub fast: Option<usize>,
    /// Whether there may be larger ones of which nothing is recorded.
    pub unrecorded: bool,
    /// Some up to that, by rising size.
    pub points: Vec<BatchPoint>,
}

/// One mini-batch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BatchPoint {
    /// Its samples.
    pub mini_batch: usize,
    /// Planned time of an iteration, in milliseconds.
    pub planned_ms: f64,
    /// Samples a second then.
    pub images_per_s: f64,
}

impl BatchPoint {
    /// So many samples in so many milliseconds.
    pub fn new(mini_batch: usize, planned_ms: f64) -> Self {
        Self { mini_batch, planned_ms, images_per_s: mini_batch as f64 / planned_ms * 1e3 }
    }
}

impl BatchReport {
    /// Of these points, by rising size.
    pub fn new(
        (policy, budget): (String, Bytes),
        (largest, unrecorded): (usize, bool),
        points: Vec<BatchPoint>,
    ) -> Self {
        let most = points.iter().map(|point| point.images_per_s).fold(0.0, f64::max);
        let fast = points.iter().rev().find(|point| point.images_per_s >= 0.9 * most);
        Self { policy, budget, largest, fast: fast.map(|point| point.mini_batch), unrecorded, points }
    }
}

impl fmt::Display for BatchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, budget, largest, fast, unrecorded, points } = self;
        write!(f, "Mini-batches in {budget} under the memory policy {policy}; ")?;
        let more = if *unrecorded { ", and nothing is recorded of larger ones" } else { "" };
        writeln!(f, "the largest found is {largest}{more}")?;
        if let Some(fast) = fast {
            writeln!(f, "  {fast} is the largest of these within 10 % of the best speed")?;
        }
        let mut table = Table::new([">mini-batch", ">planned ms", ">images/s"]);
        for BatchPoint { mini_batch, planned_ms, images_per_s } in points {
            table.row([mini_batch.to_string(), ms(*planned_ms), format!("{images_per_s:.1}")]);
        }
        write!(f, "{table}")
    }
}
