//! Calls of cuDNN, each with its status turned into an error that names the call.

use super::Result;
use crate::status_call::{StatusName, status_name};
use cudarc::cudnn::sys;
use std::ffi::{CStr, c_uint};
use tensor::cuda::CudaError;

/// `call!(function(arguments))`: a function of cuDNN, with its obligations; the library is known to be there.
macro_rules! call {
    ($function:ident ( $($argument:expr),* $(,)? )) => {
        $crate::cudnn::api::check(
            stringify!($function),
            $crate::status_call::status_call!(sys::$function($($argument),*)),
        )
    };
}
pub(super) use call;

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

fn name(status: c_uint) -> String {
    // SAFETY: the library is there, for it has just returned the status.
    let function = unsafe { sys::culib().get::<StatusName>(b"cudnnGetErrorString\0") };
    // SAFETY: this is what the function is.
    unsafe { status_name(function.ok().map(|symbol| *symbol), status) }
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
