//! NVIDIA GPUs: what is there, a context with its stream, events, and device memory.
//!
//! The driver is loaded when [`probe`] is called, never at start, so one binary runs with and without a GPU. Everything
//! here begins with the probe: a [`Cuda`] can only be had from the [`CudaDevices`] that it returns, and by then the
//! libraries are known to be there.
//!
//! NVRTC compiles CUDA kernels when they are first launched.
//!
//! All work of one [`Cuda`] goes through its one stream, in the order in which it was enqueued. The host waits only
//! where it says so.
//!
//! In a build without the feature `cuda` no value of the types is ever made, and the probe says so.

mod devices;
#[cfg_attr(not(feature = "cuda"), path = "without.rs")]
mod driver;
mod kernel;

pub use devices::{Absent, CudaDeviceInfo, CudaDevices};
pub(crate) use driver::DeviceMemory;
#[cfg(feature = "cuda")]
pub use driver::Library;
pub use driver::{Communicator, Cuda, CudaGraph, Event, Pinned, Stream, probe};
pub use kernel::{Grid, Source};

use thiserror::Error;

/// What fails as CUDA does, where nothing else is said.
pub(crate) type Result<T, E = CudaError> = std::result::Result<T, E>;

/// A call of the CUDA driver, or of a library on the GPU, that failed. Of errors that anything may return nothing more is
/// said: that the GPU is lost or out of memory, or that work failed which was waited for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} failed: {reason}")]
pub struct CudaError {
    what: String,
    reason: String,
    /// The number that cuDNN gives to the reason, if it failed.
    pub status: Option<u32>,
}

impl CudaError {
    /// `what` was attempted, and failed for `reason`.
    pub fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into(), status: None }
    }
}
