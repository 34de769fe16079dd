//! A handle of cuDNN, and the convolutions that it runs.

use super::CudnnError;
use super::api::{CudnnVersion, call, version};
use cudarc::cudnn::sys;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tensor::cuda::{Cuda, CudaError, Library, Stream};
use tensor::{Arena, Span};

/// cuDNN 9.0: the oldest whose status codes and error texts we know.
const OLDEST: CudnnVersion = CudnnVersion(90_000);

/// A handle of cuDNN. Clones share it and take turns.
#[derive(Clone)]
pub struct Cudnn(Arc<Handle>);

/// A workspace of so many bytes counts as none. Many engines want some, so a handle has as much for itself: its
/// convolutions run one after the other.
pub(crate) const SMALL_WORKSPACE: usize = 1 << 10;

struct Handle {
    raw: Mutex<RawHandle>,
    /// Where it works.
    stream: Stream,
    /// A small workspace, and where it begins.
    _spare: Arena,
    spare_address: u64,
}

struct RawHandle(sys::cudnnHandle_t);

// SAFETY: cuDNN lets any thread use a handle, one at a time.
unsafe impl Send for RawHandle {}

impl Cudnn {
    /// The handle of a device, which works in its stream.
    ///
    /// # Errors
    /// cuDNN is too old, or does not work with this driver or GPU.
    pub fn of(cuda: &Cuda) -> Result<Self, CudnnError> {
        cuda.with_library(|cudnn: &mut Self| Ok(cudnn.clone()))
    }

    /// The address of [`SMALL_WORKSPACE`] bytes.
    pub(super) fn spare(&self) -> u64 {
        self.0.spare_address
    }

    /// Calls the library with the handle, on the handle's GPU.
    pub(super) fn with<R>(
        &self,
        work: impl FnOnce(sys::cudnnHandle_t) -> Result<R, CudnnError>,
    ) -> Result<R, CudnnError> {
        self.0.stream.bind()?;
        let raw = self.0.raw.lock().unwrap_or_else(PoisonError::into_inner);
        work(raw.0)
    }
}

impl Library for Cudnn {
    type Error = CudnnError;

    fn new(stream: &Stream) -> Result<Self, CudnnError> {
        stream.bind()?;
        let found = version();
        if found < OLDEST {
            let reason = format!("version {found} is installed, and {OLDEST} is needed");
            return Err(CudaError::new("starting cuDNN", reason).into());
        }
        let mut spare = Arena::unset(stream, SMALL_WORKSPACE)?;
        let spare_address = spare.view_mut(Span::bytes(0, SMALL_WORKSPACE)).address::<u8>();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the address of a handle is written to.
        unsafe { call!(cudnnCreate(&mut handle)) }?;
        let raw = Mutex::new(RawHandle(handle));
        let cudnn = Self(Arc::new(Handle { raw, stream: stream.clone(), _spare: spare, spare_address }));
        // SAFETY: the handle was just made; it is destroyed before its stream, which it keeps.
        unsafe { call!(cudnnSetStream(handle, stream.raw().cast())) }?;
        Ok(cudnn)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.stream.bind().is_ok() {
            let RawHandle(handle) = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the handle is ours, and is not used again. Should this fail, there is nothing left to be done.
            let _ = unsafe { call!(cudnnDestroy(*handle)) };
        }
    }
}

impl fmt::Debug for Cudnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cudnn({})", version())
    }
}

/// Driver, CUDA and cuDNN on `cuda`, for a report and as part of what identifies measurements: versions of this program
/// that had no engines, no products by cuBLAS, or other algorithms beside them said so in other words.
pub fn versions(cuda: &Cuda) -> String {
    format!("cuDNN {} by its engines, strides as channels, and cuBLAS, {}", version(), cuda.versions())
}
