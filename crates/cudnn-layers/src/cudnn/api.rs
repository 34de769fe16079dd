//! Calls of cuDNN, each with its status turned into an error that names the call.

use super::{CudnnError, CudnnVersion};
use crate::status_call::status_name;
use cudarc::cudnn::sys;
use std::ffi::{CStr, c_uint, c_void};

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

pub(super) fn check(call: &'static str, status: Option<c_uint>) -> Result<(), CudnnError> {
    match status {
        Some(0) => Ok(()),
        Some(status) => Err(CudnnError::Call { call, status, detail: name(status) + &last_error() }),
        None => Err(CudnnError::Missing { call }),
    }
}

fn name(status: c_uint) -> String {
    // SAFETY: the library is there, for it has just returned the status.
    let function = unsafe { sys::culib().get::<*const c_void>(b"cudnnGetErrorString\0") };
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

pub(super) fn version() -> CudnnVersion {
    // SAFETY: the function only returns a number.
    CudnnVersion(unsafe { sys::cudnnGetVersion() })
}
