//! What can be wrong with a snapshot: one clear sentence each, with the file in it.

use std::{io, path::PathBuf};

/// Why a snapshot cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The system refuses a file. One that could not be written has not changed either.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was tried, as the beginning of a sentence.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another training writes its snapshots under the same prefix.
    #[error(
        "another training ({holder}) writes its snapshots as {}_iter_N; this one needs another --snapshot-prefix",
        prefix.display()
    )]
    Taken {
        /// The prefix.
        prefix: PathBuf,
        /// The other one's process.
        holder: String,
    },
    /// The values are on a GPU that does not give or take them.
    #[error(transparent)]
    Device(#[from] tensor::cuda::CudaError),
    /// The file is cut short, damaged or something else.
    #[error("{} is not a complete snapshot: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file is a good one, but of another kind than was asked for.
    #[error("{} {what}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// What it is, and what to name in its place.
        what: String,
    },
    /// The file does not have exactly the net's tensors.
    #[error("{} is of another net: {difference}", path.display())]
    OtherNet {
        /// The file.
        path: PathBuf,
        /// The first tensor that differs, and how.
        difference: String,
    },
    /// The solver state belongs to another net, solver or weights file.
    #[error("{} cannot be resumed: {reason}", path.display())]
    Resume {
        /// The solver state.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// The caller's tensors cannot be saved as they are.
    #[error("cannot save tensor {name}: {reason}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}
