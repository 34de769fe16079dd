//! What can be wrong with a snapshot: one clear sentence each, with the file in it.

use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
};

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
    /// The values are on a GPU that does not give or take them.
    #[error(transparent)]
    Device(#[from] tensor::cuda::CudaError),
    /// A file that is damaged, of another kind, or of another net or training; a place or tensors that cannot be written. In
    /// a sentence.
    #[error("{0}")]
    Refused(String),
}

impl SnapshotError {
    /// `what` the file at `path` is instead of what it should be, as the end of a sentence.
    pub(crate) fn refused(path: &Path, what: impl Display) -> Self {
        Self::Refused(format!("{} {what}", path.display()))
    }

    /// The file at `path` is cut short, damaged or something else.
    pub(super) fn corrupt(path: &Path, reason: impl Display) -> Self {
        Self::refused(path, format!("is not a complete snapshot: {reason}"))
    }
}
