//! What can be wrong with a snapshot: one clear sentence each, with the file in it.

use std::{fmt::Display, io, path::Path};

/// Why a snapshot cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The values are on a GPU that does not give or take them.
    #[error(transparent)]
    Device(#[from] tensor::cuda::CudaError),
    /// A file that the system refuses, and that has not changed then; one that is damaged, of another kind, or of
    /// another net or training; a place or tensors that cannot be written. In a sentence.
    #[error("{0}")]
    Refused(String),
}

impl SnapshotError {
    /// What was tried with the file at `path`, as the beginning of a sentence, for what the system says of it.
    pub fn file(action: &str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Refused(format!("{action} {}: {source}", path.display()))
    }

    /// `what` the file at `path` is instead of what it should be, as the end of a sentence.
    pub(crate) fn refused(path: &Path, what: impl Display) -> Self {
        Self::Refused(format!("{} {what}", path.display()))
    }

    /// The file at `path` is cut short, damaged or something else.
    pub(super) fn corrupt(path: &Path, reason: impl Display) -> Self {
        Self::refused(path, format!("is not a complete snapshot: {reason}"))
    }
}
