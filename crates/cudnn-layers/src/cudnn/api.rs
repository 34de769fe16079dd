//! Calls of cuDNN, each with its status turned into an error that names the call.

use super::Result;
use cudarc::cudnn::sys;
use std::ffi::{CStr, c_char, c_uint};
use tensor::cuda::CudaError;

/// `call!(function(arguments))`: a function of cuDNN, with its obligations; the library is known to be there. Arguments
/// are of types that do not depend on their use here: no bare numbers.
///
/// cudarc declares that functions return an enum of the codes known to it. A newer cuDNN may have others, and a Rust enum
/// with a value outside of its list is undefined behaviour. So the functions are looked up once more and called with
/// cudarc's own parameter types, but with an integer as their result.
macro_rules! call {
    ($function:ident ( $($argument:expr),* $(,)? )) => {{
        static ADDRESS: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
        let address = ADDRESS.get_or_init(|| {
            let name = concat!(stringify!($function), "\0").as_bytes();
            sys::culib().get::<*const std::ffi::c_void>(name).ok().map(|symbol| *symbol as usize)
        });
        // Never called: the compiler holds the arguments against the function as cudarc declares it.
        let _ = || sys::$function($($argument),*);
        let status = address.map(|address| {
            let function: unsafe extern "C" fn($($crate::cudnn::api::inferred!($argument)),*) -> std::ffi::c_uint =
                std::mem::transmute::<usize, _>(address);
            function($($argument),*)
        });
        $crate::cudnn::api::check(stringify!($function), status)
    }};
}

/// A type that the compiler finds.
macro_rules! inferred {
    ($argument:expr) => {
        _
    };
}

pub(super) use {call, inferred};

pub(super) fn check(call: &'static str, status: Option<c_uint>) -> Result<()> {
    let reason = match status {
        Some(0) => return Ok(()),
        Some(status) => name(status) + &last_error(),
        None => "the installed cuDNN does not have it".to_owned(),
    };
    let mut error = CudaError::new(call, reason);
    error.status = status;
    Err(error)
}

/// cuDNN's name for a status, also for one that is newer than this program.
fn name(status: c_uint) -> String {
    type Name = unsafe extern "C" fn(c_uint) -> *const c_char;
    // SAFETY: the library is there, for it has just returned the status. The function returns a text that lives as long
    // as the library, for any value, and an enum of C is passed as an integer is.
    unsafe {
        let function = sys::culib().get::<Name>(b"cudnnGetErrorString\0");
        let text = function.map(|name| CStr::from_ptr(name(status)).to_string_lossy().into_owned());
        text.unwrap_or_else(|_| format!("status {status}"))
    }
}

/// What cuDNN says of the last failure on this thread, in parentheses.
fn last_error() -> String {
    let mut text = [0; 512];
    // SAFETY: cuDNN writes at most as many bytes as it is told, with a zero at the end; the last byte is zero anyway.
    let text = unsafe {
        sys::cudnnGetLastErrorString(text.as_mut_ptr(), text.len() - 1);
        CStr::from_ptr(text.as_ptr())
    };
    let text = text.to_string_lossy();
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

/// The version of cuDNN, as the library counts it since version 9.
pub(super) fn version() -> usize {
    // SAFETY: the function only returns a number.
    unsafe { sys::cudnnGetVersion() }
}

/// A version, for people.
pub(super) fn version_name(version: usize) -> String {
    // Until version 8 the major version counted 1000.
    let major = if version < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", version / major, version % major / 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_countings_print_alike() {
        assert_eq!([91_400, 8_902].map(version_name), ["9.14.0", "8.9.2"]);
    }
}
