//! Host memory that the device copies from by itself, while the host goes on.

use super::{Cuda, CudaError, DeviceViewMut, Event, Stream};
use cudarc::driver::result;
use std::ffi::c_void;

/// Page-locked host memory, and the point after which it may be overwritten.
pub struct Pinned {
    memory: *mut f32,
    len: usize,
    copied: Event,
    stream: Stream,
}

// SAFETY: the memory belongs to this value alone, and any thread may touch it.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Room for `len` elements, all 0.
    ///
    /// # Errors
    /// The system does not lock that much memory.
    pub fn new(cuda: &Cuda, len: usize) -> Result<Self, CudaError> {
        cuda.bind()?;
        let copied = cuda.event()?;
        let bytes = len.max(1) * size_of::<f32>();
        // SAFETY: the context is bound.
        let memory = unsafe { result::malloc_host(bytes, 0) }
            .map_err(CudaError::driver(format!("locking {bytes} bytes of host memory")))?
            .cast::<f32>();
        // SAFETY: the memory has `bytes` bytes, aligned to a page; zeros are numbers.
        unsafe { memory.write_bytes(0, len) };
        Ok(Self { memory, len, copied, stream: cuda.stream().clone() })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, once the last copy from them is done.
    ///
    /// # Errors
    /// Work on the device failed.
    pub fn elements(&mut self) -> Result<&mut [f32], CudaError> {
        self.copied.wait()?;
        // SAFETY: the memory has `len` initialised elements, is ours, and the device reads it no more.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory, self.len) })
    }

    /// Asks for a copy of the elements to `to`.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to(&mut self, mut to: DeviceViewMut<'_>) -> Result<(), CudaError> {
        assert_eq!(self.len, to.len(), "a copy has one length");
        self.stream.bind()?;
        // SAFETY: as in `elements`; nobody writes the memory before `copied` is reached, for `elements` waits for it.
        let from = unsafe { std::slice::from_raw_parts(self.memory, self.len) };
        // SAFETY: `to` is device memory of the same length, exclusively ours.
        unsafe { result::memcpy_htod_async(to.address(), from, self.stream.raw()) }
            .map_err(CudaError::driver("copying to the GPU"))?;
        self.copied.record()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.stream.bind().and_then(|()| self.copied.wait()).is_ok() {
            // SAFETY: the memory comes from `malloc_host`, and the device reads it no more.
            let _ = unsafe { result::free_host(self.memory.cast::<c_void>()) };
        }
    }
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinned({} elements)", self.len)
    }
}
