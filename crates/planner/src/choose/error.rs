//! Why there is no plan.

use crate::model::{BatchSizePolicy, Bytes};
use thiserror::Error;

/// There is no plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanError {
    /// A kernel has no samples.
    #[error("{0} has an empty mini-batch")]
    EmptyMiniBatch(String),
    /// The cost table lacks a size that the policy wants.
    #[error(
        "{kernel} was not measured at micro-batch {micro_batch}, which the {policy} policy needs for mini-batch \
         {mini_batch}; {}",
        measured_sizes(measured)
    )]
    NotMeasured {
        /// The kernel.
        kernel: String,
        /// The size.
        micro_batch: u32,
        /// The policy that asks for it.
        policy: BatchSizePolicy,
        /// The kernel's mini-batch.
        mini_batch: u32,
        /// The sizes that there are.
        measured: Vec<u32>,
    },
    /// No algorithm at all, whatever the limit.
    #[error(
        "{kernel} has no algorithm that covers mini-batch {mini_batch} under the {policy} policy{restrictions}"
    )]
    NoAlgorithm {
        /// The kernel.
        kernel: String,
        /// Its mini-batch.
        mini_batch: u32,
        /// The sizes that were tried.
        policy: BatchSizePolicy,
        /// What the options exclude, as the end of a sentence; empty if nothing.
        restrictions: String,
    },
    /// No configuration of this kernel fits the limit.
    #[error(
        "{kernel} has no algorithm within the workspace limit of {} under the {policy} policy: \
         the smallest feasible limit is {}",
        limit.exact(), smallest.exact()
    )]
    Infeasible {
        /// The kernel.
        kernel: String,
        /// The limit given.
        limit: Bytes,
        /// The sizes that were tried.
        policy: BatchSizePolicy,
        /// The least workspace that any of its configurations needs.
        smallest: Bytes,
    },
    /// Not all kernels fit the total together (WD).
    #[error(
        "{kernels} kernels do not fit the total workspace of {} together: the smallest feasible total is {}, \
         of which {neediest} takes {}",
        total.exact(), smallest.exact(), needs.exact()
    )]
    TotalInfeasible {
        /// How many kernels share it.
        kernels: usize,
        /// The total given.
        total: Bytes,
        /// The sum of the least workspaces.
        smallest: Bytes,
        /// The kernel whose least workspace is largest.
        neediest: String,
        /// That workspace.
        needs: Bytes,
    },
    /// The ILP solver failed or gave no proven optimum (WD).
    #[error("cannot divide the total workspace: the ILP solver {0}")]
    IlpSolver(String),
}

/// What a cost table has of a kernel, as the end of a sentence.
fn measured_sizes(sizes: &[u32]) -> String {
    let list = |sizes: &[u32]| sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match sizes {
        [] => "the kernel was not measured at all".to_owned(),
        [first, second, third, .., last] if sizes.len() > 12 => {
            format!("{} sizes were measured: {first}, {second}, {third}, ..., {last}", sizes.len())
        }
        sizes => format!("measured were {}", list(sizes)),
    }
}
