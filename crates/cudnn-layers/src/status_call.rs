//! Calls of library functions whose status code may be one that this program does not know.
//!
//! cudarc declares that such functions return an enum of the codes known to it. A newer library may have others, and a
//! Rust enum with a value outside of its list is undefined behaviour. So the functions are looked up once more and
//! called with cudarc's own parameter types, but with an integer as their result.

use std::ffi::{CStr, c_char, c_uint, c_void};

/// The type of one of cudarc's functions that return a status.
pub(crate) trait ReturnsStatus {
    /// The same function, returning the status as a number.
    type Function;

    /// `address` as such a function.
    ///
    /// # Safety
    /// There is a C function at `address` with the parameters of `Self`, whose result is an enum of C.
    unsafe fn at(self, address: *const c_void) -> Self::Function;
}

/// For functions of as many parameters as there are names, and of fewer.
macro_rules! implement {
    () => {};
    ($first:ident $($parameter:ident)*) => {
        impl<Status, $first, $($parameter),*> ReturnsStatus for unsafe fn($first, $($parameter),*) -> Status {
            type Function = unsafe extern "C" fn($first, $($parameter),*) -> c_uint;

            unsafe fn at(self, address: *const c_void) -> Self::Function {
                // SAFETY: the caller's promise; an enum of C is passed as an integer is.
                unsafe { std::mem::transmute::<*const c_void, Self::Function>(address) }
            }
        }

        implement!($($parameter)*);
    };
}

implement!(A B C D E F G H I J K L M N O P Q R S T U V W);

/// `status_call!(sys::function(arguments))`: the status as a number, or `None` if the library has no such function. It
/// has the obligations of the function itself, and the library is known to be there.
macro_rules! status_call {
    ($sys:ident :: $function:ident ( $($argument:expr),* $(,)? )) => {{
        static ADDRESS: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
        let address = ADDRESS.get_or_init(|| {
            let name = concat!(stringify!($function), "\0").as_bytes();
            $sys::culib().get::<*const std::ffi::c_void>(name).ok().map(|symbol| *symbol as usize)
        });
        match *address {
            Some(address) => {
                let declared: unsafe fn($($crate::status_call::inferred!($argument)),*) -> _ = $sys::$function;
                let address = address as *const std::ffi::c_void;
                Some($crate::status_call::ReturnsStatus::at(declared, address)($($argument),*))
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
