//! What can be wrong with a snapshot: one clear sentence each, with the file in it.

use std::io;
use std::path::PathBuf;

/// Why a snapshot cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file could not be written; what stood under its name before still does.
    #[error("cannot write the snapshot {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// No snapshot could be written under a prefix, as was tried before anything else.
    #[error("no snapshot can be written as {}: {source}", path.display())]
    Place {
        /// The longest name that a snapshot would get.
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
    /// The file could not be read.
    #[error("cannot read the snapshot {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
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
    /// A tensor of the net has another shape in the file.
    #[error("{} is of another net: {name} has the shape {found:?} in it, but {expected:?} in this net", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        name: String,
        /// Shape in the net.
        expected: Vec<usize>,
        /// Shape in the file.
        found: Vec<usize>,
    },
    /// A tensor of the net is not in the file.
    #[error("{} is of another net: it has no tensor {name}, which this net has with the shape {shape:?}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        name: String,
        /// Shape in the net.
        shape: Vec<usize>,
    },
    /// A tensor of the file is not in the net.
    #[error("{} is of another net: it has a tensor {name} of shape {shape:?}, which this net has not", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        name: String,
        /// Shape in the file.
        shape: Vec<usize>,
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
