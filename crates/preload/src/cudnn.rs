//! Functions of cuDNN and of the CUDA driver, in the libraries that the process has loaded, and what they make for us.

use crate::shared::{lock, warn};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
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

/// `call!("function", (arguments))`: the status that this function of cuDNN or of the driver returns, or
/// [`NOT_INITIALIZED`] if it is not there. The caller answers for the arguments, which must be of exactly the types that
/// C declares.
macro_rules! call {
    // A type that the compiler finds.
    (@type of $argument:expr) => {
        _
    };
    ($name:expr, ($($argument:expr),* $(,)?)) => {
        match $crate::cudnn::function($name) {
            Some(address) => {
                let function: unsafe extern "C" fn($($crate::cudnn::call!(@type of $argument)),*) -> std::ffi::c_int =
                    std::mem::transmute::<usize, _>(address);
                function($($argument),*)
            }
            None => $crate::cudnn::NOT_INITIALIZED,
        }
    };
}

/// `done!("function", (arguments))`: whether this function succeeds.
macro_rules! done {
    ($name:expr, $arguments:tt) => {
        $crate::cudnn::call!($name, $arguments) == $crate::cudnn::SUCCESS
    };
}

pub(crate) use {call, done};

/// The libraries that functions are taken from: cuDNN, and the driver, which whoever uses it on a GPU has loaded.
const LIBRARIES: [&CStr; 5] =
    [c"libcudnn.so.9", c"libcudnn.so.8", c"libcudnn.so.10", c"libcudnn.so.11", c"libcuda.so.1"];

/// The address of a function, looked for until it is there. Frameworks load libraries for themselves alone
/// (`RTLD_LOCAL`), where `RTLD_NEXT` does not look, so first each is asked for by name; nothing is loaded that was not.
pub(crate) fn function(name: &str) -> Option<usize> {
    static FOUND: LazyLock<Mutex<HashMap<String, usize>>> = LazyLock::new(Default::default);
    let known = lock(&FOUND).get(name).copied();
    known.or_else(|| {
        let mut libraries = LIBRARIES.into_iter().map(loaded).chain([libc::RTLD_NEXT]);
        let found = libraries.find_map(|library| symbol(library, name));
        if found.is_none() && name.starts_with("cudnn") {
            warn(&format!("no cuDNN is loaded in this process that has {name}"));
        }
        found.inspect(|&address| _ = lock(&FOUND).insert(name.to_owned(), address))
    })
}

/// Whether this is the cuDNN that we divide convolutions for; of others all calls are passed through.
pub(crate) fn is_known() -> bool {
    let is_known = !loaded(LIBRARIES[0]).is_null();
    if !is_known {
        warn("this is not cuDNN 9: all calls are passed through");
    }
    is_known
}

/// The library of this name, if it is loaded; null if not.
fn loaded(name: &CStr) -> Raw {
    // SAFETY: the name ends in a zero.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

fn symbol(library: Raw, name: &str) -> Option<usize> {
    let name = CString::new(name).expect("a name without zeros");
    // SAFETY: the library is loaded, and the name ends in a zero. Of none, all libraries would be searched, ours first.
    let address = if library.is_null() { library } else { unsafe { libc::dlsym(library, name.as_ptr()) } };
    (!address.is_null()).then_some(address as usize)
}

/// A descriptor, an event or memory that is ours, which dies with the value.
pub(crate) struct Owned {
    pub(crate) raw: Raw,
    /// The function that destroys it.
    destroy: String,
}

// SAFETY: nothing of it belongs to a thread. A descriptor is set once, when it is made, and only read from then on.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Owned {
    /// What `make` makes, unless that fails. It may leave the null that it finds: that is nothing to destroy.
    ///
    /// # Safety
    /// What it writes may be given to this function once, when nobody uses it any more.
    pub(crate) unsafe fn new(destroy: &str, make: impl FnOnce(&mut Raw) -> bool) -> Option<Self> {
        let mut raw = null_mut();
        make(&mut raw).then(|| Self { raw, destroy: destroy.to_owned() })
    }

    /// A descriptor of a `Tensor`, `Filter` or `Convolution`, as `set` sets it, unless that fails.
    pub(crate) fn descriptor(kind: &str, set: impl FnOnce(Raw) -> bool) -> Option<Self> {
        let [create, destroy] = ["Create", "Destroy"].map(|verb| format!("cudnn{verb}{kind}Descriptor"));
        // SAFETY: the address of a descriptor of this kind is written to.
        let made = unsafe { Self::new(&destroy, |raw| done!(&create, (raw))) };
        made.filter(|made| set(made.raw))
    }

    /// A descriptor of cuDNN's backend, which is still to be set or filled.
    pub(crate) fn of_backend(kind: c_int) -> Option<Self> {
        // SAFETY: the address of a descriptor is written to.
        let create = |raw: &mut Raw| unsafe { done!("cudnnBackendCreateDescriptor", (kind, raw)) };
        // SAFETY: as above.
        unsafe { Self::new("cudnnBackendDestroyDescriptor", create) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the promise to `new`.
            unsafe { call!(&self.destroy, (self.raw)) };
        }
    }
}
