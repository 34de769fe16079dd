//! Mini-batches within a budget of memory.

use crate::{number::ms, table::Table};
use planner::Bytes;
use serde::Serialize;
use std::fmt;

/// What mini-batches bring in a budget of device memory.
#[derive(Clone, Debug, Serialize)]
pub struct BatchReport {
    /// The policy for memory.
    pub policy: String,
    /// The budget.
    pub budget: Bytes,
    /// The largest mini-batch that it holds.
    pub largest: usize,
    /// The largest of those below whose samples a second are at most a tenth fewer than the most.
    pub fast: Option<usize>,
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
    pub fn new(policy: String, budget: Bytes, largest: usize, points: Vec<BatchPoint>) -> Self {
        let most = points.iter().map(|point| point.images_per_s).fold(0.0, f64::max);
        let fast = points.iter().rev().find(|point| point.images_per_s >= 0.9 * most);
        Self { policy, budget, largest, fast: fast.map(|point| point.mini_batch), points }
    }
}

impl fmt::Display for BatchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, budget, largest, fast, points } = self;
        write!(f, "Mini-batches in {budget} under the memory policy {policy}; ")?;
        writeln!(f, "the largest that fits is {largest}")?;
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
