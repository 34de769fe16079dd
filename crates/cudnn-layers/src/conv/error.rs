//! Why a convolution cannot be run or measured.

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
        source: CudaError,
    },
    /// The GPU failed, or cuDNN could not be started.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// A result whose error is a convolution's unless said otherwise.
pub(crate) type Result<T, E = ConvError> = std::result::Result<T, E>;

/// Whether cuDNN works, but does not offer this: the algorithm does not apply to the geometry, or a tensor is larger
/// than it can handle.
pub(crate) fn is_unsupported(error: &CudaError) -> bool {
    // 3000 to 3999 are the reasons for which something is not supported.
    matches!(error.status, Some(3000..4000))
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn only_what_cudnn_does_not_offer_is_unsupported() {
        use cudarc::cudnn::sys::cudnnStatus_t::*;
        let unsupported = |status| {
            let mut error = CudaError::new("cudnnX", "why");
            error.status = Some(status as u32);
            is_unsupported(&error)
        };
        assert!(unsupported(CUDNN_STATUS_NOT_SUPPORTED));
        assert!(unsupported(CUDNN_STATUS_NOT_SUPPORTED_SHAPE));
        assert!(!unsupported(CUDNN_STATUS_EXECUTION_FAILED));
        assert!(!unsupported(CUDNN_STATUS_BAD_PARAM));
        assert!(!is_unsupported(&CudaError::new("cudnnX", "the installed cuDNN does not have it")));
    }
}
