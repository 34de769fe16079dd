//! A GPU in use, through the driver's library.

mod context;
mod graph;
mod memory;
mod module;
mod nccl;
mod pinned;
mod probe;
mod stream;

pub use context::{Cuda, Library};
pub use graph::CudaGraph;
pub(crate) use memory::DeviceMemory;
pub use nccl::Communicator;
pub use pinned::Pinned;
pub use probe::probe;
pub use stream::{Event, Stream};

use super::CudaError;
use cudarc::driver::DriverError;
use std::collections::{HashMap, hash_map::Entry};
use std::{borrow::Cow, ffi::CStr, hash::Hash};

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

/// What `map` has at `key`: made now, if it has nothing there.
fn get_or_make<K: Eq + Hash, V, E>(
    map: &mut HashMap<K, V>,
    key: K,
    make: impl FnOnce() -> Result<V, E>,
) -> Result<&mut V, E> {
    Ok(match map.entry(key) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => entry.insert(make()?),
    })
}
