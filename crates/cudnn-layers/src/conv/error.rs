//! Why a convolution cannot be run or measured.

use crate::cudnn::CudnnError;
use tensor::{GeometryError, MemoryError, cuda::CudaError};
use thiserror::Error;

/// Why a convolution cannot be run or measured.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConvError {
    /// The device lacks an algorithm, or it needs more workspace here than was planned, or the micro-batches do not add
    /// up to the mini-batch: in a sentence.
    #[error("{0}")]
    Refused(String),
    /// The extents do not make a convolution.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// cuDNN failed in one algorithm.
    #[error("{algorithm} on {samples} samples: {source}")]
    Algorithm {
        /// The algorithm.
        algorithm: String,
        /// Samples of the call.
        samples: usize,
        /// What failed.
        source: CudnnError,
    },
    /// cuDNN could not be started.
    #[error(transparent)]
    Cudnn(#[from] CudnnError),
    /// The GPU failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}
