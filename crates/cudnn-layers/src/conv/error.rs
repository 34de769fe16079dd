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

/// Why cuDNN did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CudnnError {
    /// A call failed.
    #[error("{call} failed: {detail}")]
    Call {
        /// The function's name.
        call: &'static str,
        /// The status that it returned.
        status: u32,
        /// cuDNN's name of the status and, in parentheses, what else it says of it.
        detail: String,
    },
    /// The device failed before cuDNN was called, or the installed cuDNN lacks what is called.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl CudnnError {
    /// Whether cuDNN works, but does not offer this: the algorithm does not apply to the geometry, or a tensor is
    /// larger than it can handle.
    pub fn is_unsupported(&self) -> bool {
        // 3000 to 3999 are the reasons for which something is not supported.
        matches!(self, CudnnError::Call { status, .. } if (3000..4000).contains(status))
    }

    /// Whether cuDNN was asked for something that it does not know, such as an engine of another version.
    #[cfg(feature = "cuda")]
    pub(crate) fn is_bad_parameter(&self) -> bool {
        matches!(self, CudnnError::Call { status, .. } if (2000..3000).contains(status))
    }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn only_what_cudnn_does_not_offer_is_unsupported() {
        use cudarc::cudnn::sys::cudnnStatus_t::*;
        let error = |status| CudnnError::Call {
            call: "cudnnX",
            status: status as u32,
            detail: format!("{status:?} (why)"),
        };
        assert!(error(CUDNN_STATUS_NOT_SUPPORTED).is_unsupported());
        assert!(error(CUDNN_STATUS_NOT_SUPPORTED_SHAPE).is_unsupported());
        assert!(!error(CUDNN_STATUS_EXECUTION_FAILED).is_unsupported());
        assert!(!error(CUDNN_STATUS_BAD_PARAM).is_unsupported());
        assert_eq!(error(CUDNN_STATUS_BAD_PARAM).to_string(), "cudnnX failed: CUDNN_STATUS_BAD_PARAM (why)");
    }
}
