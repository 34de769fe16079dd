//! What cuDNN answers when it does not do what it was asked to.

use std::fmt;
use tensor::cuda::CudaError;
use thiserror::Error;

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
    /// The installed library lacks a function.
    #[error("the installed cuDNN has no {call}")]
    Missing {
        /// The function's name.
        call: &'static str,
    },
    /// The installed version lacks what is called here.
    #[error("cuDNN {found} is installed, and {needed} is needed")]
    TooOld {
        /// What is installed.
        found: CudnnVersion,
        /// What is needed.
        needed: CudnnVersion,
    },
    /// The device failed before cuDNN was called.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl CudnnError {
    /// Whether cuDNN works, but does not offer this: the algorithm does not apply to the geometry, or a tensor is
    /// larger than it can handle.
    pub fn is_unsupported(&self) -> bool {
        match self {
            // 3000 to 3999 are the reasons for which something is not supported.
            CudnnError::Call { status, .. } => (3000..4000).contains(status),
            _ => false,
        }
    }

    /// Whether cuDNN was asked for something that it does not know, such as an engine of another version.
    #[cfg(feature = "cuda")]
    pub(crate) fn is_bad_parameter(&self) -> bool {
        matches!(self, CudnnError::Call { status, .. } if (2000..3000).contains(status))
    }
}

/// A version of cuDNN, as the library counts it since version 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudnnVersion(pub(crate) usize);

impl fmt::Display for CudnnVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(version) = *self;
        // Until version 8 the major version counted 1000.
        let major = if version < 10_000 { 1000 } else { 10_000 };
        write!(f, "{}.{}.{}", version / major, version % major / 100, version % 100)
    }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_countings_print_alike() {
        assert_eq!(CudnnVersion(91_400).to_string(), "9.14.0");
        assert_eq!(CudnnVersion(8_902).to_string(), "8.9.2");
        assert!(CudnnVersion(8_902) < CudnnVersion(90_000));
    }

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
