//! The handle of cuDNN that a device keeps.

use super::Result;
use super::api::{call, version, version_name};
use cudarc::cudnn::sys;
use tensor::cuda::{Cuda, CudaError, Library, Stream};

/// cuDNN 9.0: the oldest whose status codes and error texts we know.
const OLDEST: usize = 90_000;

/// A workspace of so many bytes counts as none: many engines want some, for which the device's scratch does.
pub(crate) const SMALL_WORKSPACE: usize = 1 << 10;

/// A handle of cuDNN on one GPU, working in that GPU's stream.
struct Handle {
    raw: sys::cudnnHandle_t,
    stream: Stream,
}

// SAFETY: cuDNN lets any thread use a handle, one at a time; there is one `Handle` per handle, and it is not `Sync`.
unsafe impl Send for Handle {}

/// Calls the library with the handle of a device, which is made at first use.
///
/// # Errors
/// cuDNN is too old, or does not work with this driver or GPU; or what `work` returns.
pub(crate) fn with<R>(cuda: &Cuda, work: impl FnOnce(sys::cudnnHandle_t) -> Result<R>) -> Result<R> {
    cuda.with_library(|handle: &mut Handle| work(handle.raw))
}

impl Library for Handle {
    fn new(stream: &Stream) -> Result<Self> {
        let found = version();
        if found < OLDEST {
            let [found, oldest] = [found, OLDEST].map(version_name);
            let reason = format!("version {found} is installed, and {oldest} is needed");
            return Err(CudaError::new("starting cuDNN", reason));
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address of a handle is written to.
        unsafe { call!(cudnnCreate(&mut raw)) }?;
        let handle = Self { raw, stream: stream.clone() };
        let stream: sys::cudaStream_t = stream.raw().cast();
        // SAFETY: the handle was just made; it is destroyed before its stream, which it keeps.
        unsafe { call!(cudnnSetStream(raw, stream)) }?;
        Ok(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.stream.bind().is_ok() {
            // SAFETY: the handle is ours, and is not used again. Should this fail, there is nothing left to be done.
            let _ = unsafe { call!(cudnnDestroy(self.raw)) };
        }
    }
}

/// Driver, CUDA and cuDNN on `cuda`, for a report and as part of what identifies measurements: versions of this program
/// that had no engines, no products by cuBLAS, or other algorithms beside them said so in other words.
pub fn versions(cuda: &Cuda) -> String {
    let own = version_name(version());
    format!("cuDNN {own} by its engines, strides as channels, and cuBLAS, {}", cuda.versions())
}
