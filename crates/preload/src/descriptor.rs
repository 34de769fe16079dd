//! Descriptors of cuDNN that are the library's own.

use crate::cudnn::{Raw, call, done};
use std::{ffi::c_int, ptr::null_mut};

/// A descriptor, which dies with the value.
pub(crate) struct Descriptor {
    pub(crate) raw: Raw,
    /// cuDNN's function that destroys it.
    destroy: String,
}

// SAFETY: a descriptor is set once, when it is made, and only read from then on; it belongs to no thread.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    /// A `Tensor`, `Filter` or `Convolution`, as `set` sets it, unless that fails.
    pub(crate) fn new(kind: &str, set: impl FnOnce(Raw) -> bool) -> Option<Self> {
        let mut raw = null_mut();
        // SAFETY: the address of a descriptor is written to.
        let is_made = unsafe { done!(&format!("cudnnCreate{kind}Descriptor"), (&raw mut raw)) };
        let made = is_made.then(|| Self { raw, destroy: format!("cudnnDestroy{kind}Descriptor") });
        made.filter(|made| set(made.raw))
    }

    /// One of cuDNN's backend, which is still to be set or filled.
    pub(crate) fn of_backend(kind: c_int) -> Option<Self> {
        let mut raw = null_mut();
        // SAFETY: as above.
        let is_made = unsafe { done!("cudnnBackendCreateDescriptor", (kind, &raw mut raw)) };
        is_made.then(|| Self { raw, destroy: "cudnnBackendDestroyDescriptor".to_owned() })
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made in one of the functions above, and not used again.
        unsafe { call!(cudnn, &self.destroy, (self.raw)) };
    }
}
