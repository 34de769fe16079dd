//! What a user wants of a plan, and why there is none.

use crate::model::{BatchSizePolicy, Bytes, Kernel, Measurement, WdSolver, WorkspacePolicy};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a user wants of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// The micro-batch sizes that may be used.
    pub batch_size_policy: BatchSizePolicy,
    /// How kernels get workspace.
    pub workspace_policy: WorkspacePolicy,
    /// WR: workspace of each kernel. WD: total of all kernels. WS: the arena that all share, and so of each kernel.
    pub limit: Bytes,
    /// Only algorithms of at most this accuracy class (largest |error| relative to the largest |reference|).
    pub max_error: Option<f32>,
    /// Only algorithms that give bit-equal results every time.
    pub deterministic_only: bool,
    /// WD: what divides the total.
    #[serde(default)]
    pub wd_solver: WdSolver,
}

impl Default for PlanOptions {
    /// The original's defaults: powerOfTwo, 64 MiB for each kernel.
    fn default() -> Self {
        Self {
            batch_size_policy: BatchSizePolicy::PowerOfTwo,
            workspace_policy: WorkspacePolicy::Wr,
            limit: Bytes::mib(64),
            max_error: None,
            deterministic_only: false,
            wd_solver: WdSolver::Exact,
        }
    }
}

impl PlanOptions {
    /// Whether an algorithm may be used at all.
    pub fn admits(&self, measurement: &Measurement) -> bool {
        self.max_error.is_none_or(|limit| measurement.max_error <= limit)
            && (measurement.deterministic || !self.deterministic_only)
    }

    /// What the options exclude, as the end of a sentence.
    pub fn restrictions(&self) -> String {
        let error = self.max_error.map(|limit| format!("a maximum error of {limit:e}"));
        let deterministic = self.deterministic_only.then(|| "deterministic algorithms only".to_owned());
        let wanted: Vec<String> = error.into_iter().chain(deterministic).collect();
        if wanted.is_empty() { String::new() } else { format!(" with {}", wanted.join(" and ")) }
    }
}

/// There is no plan, for a reason that is told in a sentence.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanError {
    /// The cost table lacks a size that the policy wants.
    #[error("{0}")]
    NotMeasured(String),
    /// No algorithm of a kernel covers its mini-batch, or not all kernels fit the limit, or under WD the total together; a
    /// kernel has no samples; the ILP solver failed or gave no proven optimum (WD).
    #[error("{0}")]
    Refused(String),
}

impl PlanError {
    /// No configuration of `kernel` fits `limit`; the smallest one takes `smallest`.
    pub(crate) fn beyond(kernel: &Kernel, policy: BatchSizePolicy, limit: Bytes, smallest: Bytes) -> Self {
        let (limit, least) = (limit.exact(), smallest.exact());
        Self::Refused(format!(
            "{kernel} has no algorithm within the workspace limit of {limit} under the {policy} policy: the smallest feasible \
             limit is {least}"
        ))
    }
}
