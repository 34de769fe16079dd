//! What is measured, and how far that can be trusted.

mod adaptive;
mod coverage;
mod estimate;
mod estimator;
mod measuring;
mod profiler;
mod repeat;

pub use coverage::{Coverage, coverage, measured_pairs};
pub use estimator::{EstimateError, Estimator};
pub use measuring::{ProfileError, Progress};
pub use profiler::{Done, Profiler, ProfilerError, Request, RequestError};
pub use repeat::{Noise, repeat};

use crate::model::{BatchSizePolicy, Kernel};
use crate::{choose::PlanOptions, table::CostTable};
use adaptive::measure_likely;
use measuring::Measuring;

/// Measures what a plan of `kernels` with `options` needs and `table` does not have yet: every size of the batch-size
/// policy, identical kernels once, and of each the largest size first. Under `adaptive` sizes are chosen on the way,
/// with regard to the workspace policy and its limit: no more than 15 % of what `all` measures (or what `powerOfTwo`
/// does, for small mini-batches), less if the plan is within 1 % of its lower bound before.
///
/// # Errors
/// When the profiler fails or returns an impossible measurement. What was measured before stays in the table.
pub fn profile(
    table: &mut CostTable,
    kernels: &[Kernel],
    options: &PlanOptions,
    profiler: &mut dyn Profiler,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<(), ProfileError> {
    let mut measuring = Measuring { table, profiler, progress: &mut progress, done: 0, total: 0 };
    match options.batch_size_policy {
        BatchSizePolicy::Adaptive => measure_likely(&mut measuring, kernels, options),
        policy => {
            let missing = measuring.table.missing(kernels, policy);
            measuring.total = missing.len();
            measuring.measure(&missing)
        }
    }
}
