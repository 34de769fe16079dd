//! From measurements to a plan.

use super::wd;
use crate::{
    choose::{Plan, PlanError, PlanOptions, Problem, choose},
    model::{Bytes, Kernel, WorkspacePolicy},
    table::CostTable,
};

/// Plans `kernels` on the measurements of `table`.
///
/// # Errors
/// When a kernel has an empty mini-batch, lacks a measurement that the batch-size policy needs, has no admitted
/// algorithm, or does not fit the limit; the last names the smallest limit that would do. Also when WD's ILP solver
/// fails.
pub fn plan(kernels: &[Kernel], table: &CostTable, options: &PlanOptions) -> Result<Plan, PlanError> {
    let problem = Problem::new(kernels, table, options)?;
    let (choices, division) = match options.workspace_policy {
        WorkspacePolicy::Wr | WorkspacePolicy::Ws => (choose(&problem, |_| options.limit)?, None),
        WorkspacePolicy::Wd => {
            let (choices, division) = wd::choose(&problem, options.limit)?;
            (choices, Some(division))
        }
    };
    Ok(Plan::new(kernels, options, choices, division))
}

/// Plans as [`plan`] does under WS, with a limit for each kernel, in order, instead of the one of `options`: what
/// is free when the kernel runs. The schedule says where a kernel's workspace then lies.
///
/// # Panics
/// If there are not as many limits as kernels.
///
/// # Errors
/// As [`plan`].
pub fn plan_within(
    kernels: &[Kernel],
    limits: &[Bytes],
    table: &CostTable,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    assert_eq!(kernels.len(), limits.len(), "one limit for each kernel");
    let largest = limits.iter().copied().max().unwrap_or_default();
    let options = PlanOptions { workspace_policy: WorkspacePolicy::Ws, limit: largest, ..options.clone() };
    let choices = choose(&Problem::new(kernels, table, &options)?, |kernel| limits[kernel])?;
    Ok(Plan::new(kernels, &options, choices, None))
}
