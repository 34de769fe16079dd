//! From measurements to a plan.

use super::wd;
use crate::choose::{Fronts, Plan, PlanError, PlanOptions, choose};
use crate::model::{Bytes, Kernel, WorkspacePolicy};
use crate::table::CostTable;

/// Plans `kernels` on the measurements of `table`.
///
/// # Errors
/// When a kernel has an empty mini-batch, lacks a measurement that the batch-size policy needs, has no admitted
/// algorithm, or does not fit the limit; the last names the smallest that would do. Also when WD's ILP solver fails.
pub fn plan(kernels: &[Kernel], table: &CostTable, options: &PlanOptions) -> Result<Plan, PlanError> {
    Fronts::new(kernels, table, options)?.plan(options)
}

impl Fronts {
    /// Plans as [`plan`] does, without computing the desirable sets again: they were made with these `options` but for
    /// the workspace policy and its limit.
    ///
    /// # Errors
    /// When a kernel does not fit the limit, or WD's ILP solver fails.
    pub fn plan(&self, options: &PlanOptions) -> Result<Plan, PlanError> {
        let (planned, division) = match options.workspace_policy {
            WorkspacePolicy::Wr | WorkspacePolicy::Ws => (choose(self, options, |_| options.limit)?, None),
            WorkspacePolicy::Wd => {
                let (planned, division) = wd::choose(self, options)?;
                (planned, Some(division))
            }
        };
        Ok(Plan::new(options, planned, division))
    }

    /// The same under WS, with a limit for each kernel, in order, instead of the one of `options`: what is free when
    /// the kernel runs. The schedule says where a kernel's workspace then lies.
    ///
    /// # Panics
    /// If there are not as many limits as kernels.
    ///
    /// # Errors
    /// When a kernel does not fit its limit.
    pub fn plan_within(&self, limits: &[Bytes], options: &PlanOptions) -> Result<Plan, PlanError> {
        assert_eq!(self.kernels.len(), limits.len(), "one limit for each kernel");
        let limit = limits.iter().copied().max().unwrap_or_default();
        let options = PlanOptions { workspace_policy: WorkspacePolicy::Ws, limit, ..options.clone() };
        Ok(Plan::new(&options, choose(self, &options, |kernel| limits[kernel])?, None))
    }
}
