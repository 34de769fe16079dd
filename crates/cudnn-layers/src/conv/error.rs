//! Why a convolution cannot be run or measured.

use super::ConvOp;
use crate::cudnn::CudnnError;
use planner::Bytes;
use tensor::{ConvGeometry, GeometryError, MemoryError, cuda::CudaError};
use thiserror::Error;

/// Why a convolution cannot be run or measured.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConvError {
    /// The backend has no such algorithm, or it does not apply to this geometry.
    #[error("this device has no algorithm {algorithm} for {op} of {geometry:?}")]
    Unknown {
        /// The operation.
        op: ConvOp,
        /// The requested name.
        algorithm: String,
        /// The micro-batch's geometry.
        geometry: Box<ConvGeometry>,
    },
    /// The micro-batches do not add up to the mini-batch.
    #[error("a configuration of {found} samples does not cover a mini-batch of {expected}")]
    MiniBatch {
        /// Samples of the configuration.
        found: usize,
        /// Samples of the kernel.
        expected: usize,
    },
    /// The plan was made for less workspace than the algorithm needs here.
    #[error(
        "{algorithm} at micro-batch {micro_batch} needs {needed} of workspace, but was planned with {planned}"
    )]
    Workspace {
        /// The algorithm.
        algorithm: String,
        /// Samples of the call.
        micro_batch: usize,
        /// What it needs.
        needed: Bytes,
        /// What the plan says.
        planned: Bytes,
    },
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

#[cfg(feature = "cuda")]
impl ConvError {
    /// cuDNN failed in one algorithm.
    pub(crate) fn of_algorithm(algorithm: &str, samples: usize, source: CudnnError) -> Self {
        Self::Algorithm { algorithm: algorithm.to_owned(), samples, source }
    }
}
