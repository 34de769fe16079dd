//! Why there is no plan.

use crate::model::{BatchSizePolicy, Bytes, Kernel};
use thiserror::Error;

/// There is no plan, for a reason that is told in a sentence.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanError {
    /// The cost table lacks a size that the policy wants.
    #[error("{0}")]
    NotMeasured(String),
    /// No algorithm of a kernel covers its mini-batch, whatever the limit.
    #[error("{0}")]
    NoAlgorithm(String),
    /// Not all kernels fit the limit, or under WD the total together.
    #[error("{message}")]
    Infeasible {
        /// The smallest limit, or total, with a plan.
        smallest: Bytes,
        /// What does not fit.
        message: String,
    },
    /// A kernel has no samples, or the ILP solver failed or gave no proven optimum (WD).
    #[error("{0}")]
    Refused(String),
}

impl PlanError {
    /// No configuration of `kernel` fits `limit`; the smallest one takes `smallest`.
    pub(crate) fn beyond(kernel: &Kernel, policy: BatchSizePolicy, limit: Bytes, smallest: Bytes) -> Self {
        let (limit, least) = (limit.exact(), smallest.exact());
        let message = format!(
            "{kernel} has no algorithm within the workspace limit of {limit} under the {policy} policy: the smallest feasible \
             limit is {least}"
        );
        Self::Infeasible { smallest, message }
    }
}
