//! A GPU in use, through the driver's library.

mod context;
mod graph;
mod library;
mod memory;
mod module;
mod nccl;
mod pinned;
mod probe;
mod stream;

pub use context::Cuda;
pub use graph::CudaGraph;
pub use library::Library;
pub(crate) use memory::DeviceMemory;
pub use nccl::Communicator;
pub use pinned::Pinned;
pub use probe::probe;
pub use stream::{Event, Stream};

use super::CudaError;
use cudarc::driver::DriverError;
use std::{borrow::Cow, ffi::CStr};

impl CudaError {
    /// For `map_err`: says what was attempted.
    fn driver(what: impl Into<String>) -> impl FnOnce(DriverError) -> CudaError {
        |error| CudaError::new(what, reason(error))
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
