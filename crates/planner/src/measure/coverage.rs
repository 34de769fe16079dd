//! How much was measured, and how much a plan could gain from more.

use super::estimate::{Estimate, plan};
use crate::model::{BatchSizePolicy, Kernel};
use crate::{choose::PlanOptions, table::CostTable};
use serde::{Deserialize, Serialize};

/// What a table holds of a net, against what the `all` policy would measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Pairs of distinct kernel and size that were measured.
    pub measured: usize,
    /// Pairs that `all` measures.
    pub all: usize,
    /// Time of the plan on what was measured, if there is one.
    pub time_ms: Option<f64>,
    /// Time that no plan under `all` can beat, if there is one: true as far as more samples take no less time and
    /// workspace, and no more time per sample. Measurements are noisy, so a bound in good faith only.
    pub lower_bound_ms: Option<f64>,
}

impl Coverage {
    /// The share of `all`'s measurements that was made.
    pub fn share(&self) -> f64 {
        if self.all == 0 { 1.0 } else { self.measured as f64 / self.all as f64 }
    }

    /// By how much the plan is slower than its lower bound, as a part of it: not measuring the rest loses at most that.
    pub fn gap(&self) -> Option<f64> {
        let (time_ms, bound_ms) = (self.time_ms?, self.lower_bound_ms?);
        Some(if bound_ms > 0.0 { (time_ms / bound_ms - 1.0).max(0.0) } else { 0.0 })
    }
}

/// What `table` holds for a plan of `kernels` with `options`, under any batch-size policy.
pub fn coverage(table: &CostTable, kernels: &[Kernel], options: &PlanOptions) -> Coverage {
    let all_sizes = PlanOptions { batch_size_policy: BatchSizePolicy::All, ..options.clone() };
    let least = Estimate::Least.complete(table, kernels, options);
    let (measured, all) = measured_pairs(table, kernels, BatchSizePolicy::All);
    let time_ms = |table: &CostTable, options| plan(kernels, table, options).ok().map(|plan| plan.time_ms);
    Coverage { measured, all, time_ms: time_ms(table, options), lower_bound_ms: time_ms(&least, &all_sizes) }
}

/// How many pairs of distinct kernel and size that a plan under `policy` may use are measured, and how many there are;
/// under `adaptive` it may use all.
pub fn measured_pairs(table: &CostTable, kernels: &[Kernel], policy: BatchSizePolicy) -> (usize, usize) {
    let policy = if policy == BatchSizePolicy::Adaptive { BatchSizePolicy::All } else { policy };
    let all = CostTable::default().missing(kernels, policy);
    let is_measured = |&&(kernel, size): &&(&Kernel, u32)| table.measurements(&kernel.id, size).is_some();
    (all.iter().filter(is_measured).count(), all.len())
}
