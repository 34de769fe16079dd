//! Calls of library functions whose status code may be one that this program does not know.
//!
//! cudarc declares that such functions return an enum of the codes known to it. A newer library may have others, and a
//! Rust enum with a value outside of its list is undefined behaviour. So the functions are looked up once more and
//! called with cudarc's own parameter types, but with an integer as their result.

use std::ffi::{CStr, c_char, c_uint};

/// `status_call!(sys::function(arguments))`: the status as a number, or `None` if the library has no such function. It
/// has the obligations of the function itself, and the library is known to be there. Arguments are of types that do not
/// depend on their use here: no bare numbers.
macro_rules! status_call {
    ($sys:ident :: $function:ident ( $($argument:expr),* $(,)? )) => {{
        static ADDRESS: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
        let address = ADDRESS.get_or_init(|| {
            let name = concat!(stringify!($function), "\0").as_bytes();
            $sys::culib().get::<*const std::ffi::c_void>(name).ok().map(|symbol| *symbol as usize)
        });
        // Never called: the compiler holds the arguments against the function as cudarc declares it.
        let _ = || $sys::$function($($argument),*);
        match *address {
            Some(address) => {
                let function: unsafe extern "C" fn($($crate::status_call::inferred!($argument)),*) -> std::ffi::c_uint =
                    std::mem::transmute::<usize, _>(address);
                Some(function($($argument),*))
            }
            None => None,
        }
    }};
}

/// A type that the compiler finds.
macro_rules! inferred {
    ($argument:expr) => {
        _
    };
}

pub(crate) use {inferred, status_call};

/// What gives a library's name for a status, an enum of C, which is passed as an integer is.
pub(crate) type StatusName = unsafe extern "C" fn(c_uint) -> *const c_char;

/// A library's name for a status, also for one that is newer than this program, as its own `function` tells.
///
/// # Safety
/// `function`, if there is one, returns a text that lives as long as the library, for any value.
pub(crate) unsafe fn status_name(function: Option<StatusName>, status: c_uint) -> String {
    let Some(function) = function else { return format!("status {status}") };
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(function(status)) };
    name.to_string_lossy().into_owned()
}
