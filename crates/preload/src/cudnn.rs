//! The functions of cuDNN and of the CUDA driver, in the libraries that the process has loaded, and descriptors.

use crate::shared::{lock, warn};
use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex};

/// A handle, a descriptor, a stream, an event, or an address in a GPU's memory.
pub(crate) type Raw = *mut c_void;

/// What cuDNN's functions return, of which newer libraries may have values that we do not know.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const NOT_INITIALIZED: Status = 1001;
pub(crate) const NOT_SUPPORTED: Status = 3000;

/// One answer of Find or Get: `cudnnConvolutionFwdAlgoPerf_t`, and the same for the other operations.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AlgorithmPerformance {
    pub(crate) algorithm: c_int,
    pub(crate) status: Status,
    /// Milliseconds, or -1 if it was not measured.
    pub(crate) time_ms: f32,
    /// Bytes of workspace.
    pub(crate) memory: usize,
    pub(crate) determinism: c_int,
    /// The arithmetic that all of this holds for (`cudnnMathType_t`).
    pub(crate) math: c_int,
    pub(crate) reserved: [c_int; 3],
}

/// `call!(library, "function", (arguments))`: the status that it returns, or [`NOT_INITIALIZED`] if it is not there.
/// The caller answers for the arguments, which must be of exactly the types that C declares.
macro_rules! call {
    ($library:ident, $name:expr, ($($argument:expr),* $(,)?)) => {
        match $crate::cudnn::$library($name) {
            Some(address) => {
                let function: unsafe extern "C" fn($($crate::cudnn::inferred!($argument)),*) -> std::ffi::c_int =
                    std::mem::transmute::<usize, _>(address);
                function($($argument),*)
            }
            None => $crate::cudnn::NOT_INITIALIZED,
        }
    };
}

/// `done!("function", (arguments))`: whether this function of cuDNN succeeds.
macro_rules! done {
    ($name:expr, $arguments:tt) => {
        $crate::cudnn::call!(cudnn, $name, $arguments) == $crate::cudnn::SUCCESS
    };
}

/// A type that the compiler finds.
macro_rules! inferred {
    ($argument:expr) => {
        _
    };
}

pub(crate) use {call, done, inferred};

/// The address of a function of cuDNN. Frameworks load it for themselves alone (`RTLD_LOCAL`), where `RTLD_NEXT` does
/// not look, so first the library is asked for by name; nothing is loaded that was not.
pub(crate) fn cudnn(name: &str) -> Option<usize> {
    found(name, || {
        let versions = [9, 8, 10, 11].into_iter().map(|version| loaded(&format!("libcudnn.so.{version}")));
        let found = versions.chain([libc::RTLD_NEXT]).find_map(|library| symbol(library, name));
        if found.is_none() {
            warn(&format!("no cuDNN is loaded in this process that has {name}"));
        }
        found
    })
}

/// The address of a function of the driver, which whoever uses cuDNN on a GPU has loaded.
pub(crate) fn driver(name: &str) -> Option<usize> {
    found(name, || symbol(loaded("libcuda.so.1"), name))
}

/// What `find` finds, looked for until it is there.
fn found(name: &str, find: impl FnOnce() -> Option<usize>) -> Option<usize> {
    static FOUND: LazyLock<Mutex<HashMap<String, usize>>> = LazyLock::new(Default::default);
    let known = lock(&FOUND).get(name).copied();
    known.or_else(|| find().inspect(|&address| _ = lock(&FOUND).insert(name.to_owned(), address)))
}

/// Whether this is the cuDNN that we divide convolutions for; of others all calls are passed through.
pub(crate) fn is_known() -> bool {
    let is_known = !loaded("libcudnn.so.9").is_null();
    if !is_known {
        warn("this is not cuDNN 9: all calls are passed through");
    }
    is_known
}

/// The library of this name, if it is loaded; null if not.
fn loaded(name: &str) -> Raw {
    let name = CString::new(name).expect("a name without zeros");
    // SAFETY: the name ends in a zero.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

fn symbol(library: Raw, name: &str) -> Option<usize> {
    let name = CString::new(name).expect("a name without zeros");
    // SAFETY: the library is loaded, and the name ends in a zero. Of none, all libraries would be searched, ours first.
    let address = if library.is_null() { library } else { unsafe { libc::dlsym(library, name.as_ptr()) } };
    (!address.is_null()).then_some(address as usize)
}

/// A descriptor that is ours, which dies with the value.
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
