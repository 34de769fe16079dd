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

mod context;
mod graph;
mod library;
mod memory;
mod module;
mod pinned;
mod probe;
mod stream;

pub use context::Cuda;
pub use graph::CudaGraph;
pub use library::Library;
pub(crate) use memory::DeviceMemory;
pub use module::{Arg, Grid, Source};
pub use pinned::Pinned;
pub use probe::{Absent, CudaDeviceInfo, CudaDevices, CudaVersion, probe};
pub use stream::{Event, Stream};

use cudarc::driver::DriverError;
use std::{borrow::Cow, ffi::CStr};
use thiserror::Error;

/// A call of the CUDA driver, or of a library on the GPU, that failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} failed: {reason}")]
pub struct CudaError {
    what: String,
    reason: String,
}

impl CudaError {
    /// `what` was attempted, and failed for `reason`.
    pub fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into() }
    }

    /// For `map_err`: says what was attempted.
    fn driver(what: impl Into<String>) -> impl FnOnce(DriverError) -> CudaError {
        |error| CudaError { what: what.into(), reason: reason(error) }
    }
}

/// The driver's name for an error and its explanation.
fn reason(error: DriverError) -> String {
    fn text(text: Result<&CStr, DriverError>) -> Option<Cow<'_, str>> {
        text.ok().map(CStr::to_string_lossy)
    }
    match (text(error.error_name()), text(error.error_string())) {
        (Some(name), Some(explanation)) => format!("{name} ({explanation})"),
        _ => format!("error {:?}", error.0),
    }
}
