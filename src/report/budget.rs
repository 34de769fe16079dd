//! What a budget of device memory allows.

use super::{
    Step,
    number::{ms, times},
    table::{Align, Table},
};
use planner::Bytes;
use serde::Serialize;
use std::fmt;

/// A plan for a budget of device memory, beside what other policies make of the same memory.
#[derive(Clone, Debug, Serialize)]
pub struct BudgetReport {
    /// The budget.
    pub budget_bytes: u64,
    /// What the plan takes of it.
    pub arena_bytes: u64,
    /// What the net takes without any workspace.
    pub without_workspace_bytes: u64,
    /// The least that any kernel may have at its step.
    pub smallest_limit_bytes: u64,
    /// The most.
    pub largest_limit_bytes: u64,
    /// Planned time of all kernels, each limited by what is free at its own step.
    pub time_ms: f64,
    /// WR: the largest limit, the same for all kernels, that keeps the budget.
    pub wr_limit_bytes: Option<u64>,
    /// The time under it.
    pub wr_time_ms: Option<f64>,
    /// WD: the total that is left beside everything else.
    pub wd_total_bytes: u64,
    /// The time if it is divided among all kernels, if it suffices.
    pub wd_time_ms: Option<f64>,
    /// The time in any amount of memory.
    pub unlimited_time_ms: f64,
    /// The time as a function of the budget: where it falls, and to what.
    pub curve: Vec<Step>,
    /// Milliseconds that each MiB more could save at best.
    pub price_ms_per_mib: f64,
    /// The smallest budget with a plan.
    pub smallest_budget_bytes: u64,
    /// The budget below which time begins to suffer.
    pub enough_budget_bytes: u64,
}

impl fmt::Display for BudgetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: u64| Bytes(bytes).to_string();
        writeln!(
            f,
            "Device memory {}: the plan takes {}, {} without workspace; each kernel may have what is free at its own step, \
             {} to {}",
            bytes(self.budget_bytes),
            bytes(self.arena_bytes),
            bytes(self.without_workspace_bytes),
            bytes(self.smallest_limit_bytes),
            bytes(self.largest_limit_bytes)
        )?;
        let columns =
            [("in the same memory", Align::Left), ("ms", Align::Right), ("this is faster by", Align::Right)];
        let mut table = Table::new(columns);
        table.row(["WS by the schedule (this plan)".to_owned(), ms(self.time_ms), String::new()]);
        let wr = self.wr_limit_bytes.map_or_else(
            || "WR: no limit for all fits".to_owned(),
            |limit| format!("WR, {} for each kernel", bytes(limit)),
        );
        let wd = format!("WD, {} divided among all", bytes(self.wd_total_bytes));
        let unlimited = "any amount of memory".to_owned();
        for (name, time_ms) in
            [(wr, self.wr_time_ms), (wd, self.wd_time_ms), (unlimited, Some(self.unlimited_time_ms))]
        {
            let gain = time_ms.map_or_else(|| "-".to_owned(), |time_ms| times(time_ms / self.time_ms));
            table.row([name, time_ms.map_or_else(|| "does not fit".to_owned(), ms), gain]);
        }
        writeln!(f, "{table}")?;
        write!(
            f,
            "  time suffers below {}; nothing fits below {}",
            Bytes(self.enough_budget_bytes).exact(),
            Bytes(self.smallest_budget_bytes).exact()
        )
    }
}
