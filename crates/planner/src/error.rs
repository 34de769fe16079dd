//! Everything that can go wrong, each as one sentence.

use thiserror::Error;

use crate::ilp::DivideError;
use crate::kernel::{Kernel, KernelId};
use crate::micro::Algorithm;
use crate::policy::BatchSizePolicy;
use crate::units::Bytes;

/// A text that is no size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseBytesError {
    /// Nothing was given.
    #[error("a size is missing: write bytes or a unit, such as 64MiB")]
    Empty,
    /// A minus sign.
    #[error("\"{0}\" is not a size: it is negative")]
    Negative(String),
    /// No number, or a malformed one.
    #[error("\"{0}\" is not a size: it must begin with a number, such as 64MiB or 1.5GiB")]
    Number(String),
    /// Letters that are no unit.
    #[error("\"{text}\" is not a size: \"{unit}\" is no unit (use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB)")]
    Unit {
        /// The whole text.
        text: String,
        /// What stood where the unit should.
        unit: String,
    },
    /// A point in a number of bytes.
    #[error("\"{0}\" is not a size: bytes have no fractions (is a unit missing?)")]
    FractionOfAByte(String),
    /// More than 2^64 - 1 bytes.
    #[error("\"{0}\" is not a size: it is larger than 2^64 - 1 bytes")]
    Overflow(String),
}

/// A text that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{text}\" is no {kind} policy: choose {choices}")]
pub struct ParsePolicyError {
    kind: &'static str,
    text: String,
    choices: &'static str,
}

impl ParsePolicyError {
    pub(crate) fn new(kind: &'static str, text: &str, choices: &'static str) -> ParsePolicyError {
        ParsePolicyError { kind, text: text.into(), choices }
    }
}

/// A measurement that cannot be planned with.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum InvalidMeasurement {
    /// It is about another number of samples than its group, or about none.
    #[error("{algorithm} was measured at micro-batch {found} in a group for micro-batch {expected}")]
    MicroBatch {
        /// The algorithm.
        algorithm: Algorithm,
        /// Samples of the measurement.
        found: u32,
        /// Samples of the group.
        expected: u32,
    },
    /// Negative or not finite.
    #[error("{algorithm} has an impossible time of {time_ms} ms")]
    Time {
        /// The algorithm.
        algorithm: Algorithm,
        /// Its time.
        time_ms: f64,
    },
    /// A part that is negative or more than the whole.
    #[error("{algorithm} cannot share {shared_ms} ms of its {time_ms} ms among micro-batches")]
    Shared {
        /// The algorithm.
        algorithm: Algorithm,
        /// Its time.
        time_ms: f64,
        /// The part.
        shared_ms: f64,
    },
    /// Negative or not finite.
    #[error("{algorithm} has an impossible maximum error of {max_error}")]
    MaxError {
        /// The algorithm.
        algorithm: Algorithm,
        /// Its error class.
        max_error: f32,
    },
}

/// Profiling stopped at one kernel.
#[derive(Debug, Error)]
#[error("cannot profile {kernel} ({}) at micro-batch {micro_batch}: {source}", id.shape)]
pub struct ProfileError {
    /// The kernel, as in `conv2 Forward`.
    pub kernel: String,
    /// What it computes.
    pub id: KernelId,
    /// Samples of the failed measurement.
    pub micro_batch: u32,
    /// What the profiler said, or an [`InvalidMeasurement`] it returned.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// A cost table that cannot be read.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("cost table, line {line}: {reason}")]
pub struct CostTableError {
    /// Line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub reason: String,
}

/// Two cost tables that must not be mixed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot merge cost tables: their {what} differs, \"{ours}\" and \"{theirs}\"")]
pub struct MergeError {
    /// What differs: the device, the library version or the number of threads.
    pub what: &'static str,
    /// That of the table that was to grow.
    pub ours: String,
    /// That of the other.
    pub theirs: String,
}

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
    /// The ILP solver failed (WD).
    #[error("cannot divide the total workspace: {0}")]
    Divide(#[from] DivideError),
}

impl PlanError {
    pub(crate) fn not_measured(
        kernel: &Kernel,
        micro_batch: u32,
        policy: BatchSizePolicy,
        measured: Vec<u32>,
    ) -> PlanError {
        let mini_batch = kernel.mini_batch;
        PlanError::NotMeasured { kernel: kernel.to_string(), micro_batch, policy, mini_batch, measured }
    }
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
