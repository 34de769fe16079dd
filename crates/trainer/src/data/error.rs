//! What can be wrong with data: one clear sentence each, with the file, the line or the value in it.

use std::{fmt::Display, io, path::Path};
use tensor::cuda::CudaError;

/// Why a data set cannot be opened, read or fed to a net.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file that cannot be read or does not do, a sample, or settings, in a sentence.
    #[error("{0}")]
    Invalid(String),
    /// The system refuses a background thread.
    #[error("no thread can be started to load data: {0}")]
    Thread(io::Error),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] tensor::MemoryError),
}

impl From<CudaError> for DataError {
    fn from(error: CudaError) -> Self {
        Self::Memory(error.into())
    }
}

impl DataError {
    /// A file or folder is missing or not readable, or a gzip stream in it is damaged or cut short.
    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Invalid(format!("cannot read {}: {source}", path.display()))
    }

    /// `reason` is wrong at `place`: a file, a line of one, or a sample ([`Dataset::place`](super::Dataset::place)).
    pub(super) fn at(place: impl Display, reason: impl Display) -> Self {
        Self::Invalid(format!("{place}: {reason}"))
    }
}
