//! Host memory that the device copies from by itself, while the host goes on.

use super::{Cuda, CudaError, Event, Stream};
use crate::{Element, ViewMut};
use cudarc::driver::result;
use std::ffi::c_void;

/// Page-locked host memory, and the point after which it may be overwritten.
pub struct Pinned {
    memory: *mut u8,
    len: usize,
    copied: Event,
    stream: Stream,
}

// SAFETY: the memory belongs to this value alone, and any thread may touch it.
unsafe impl Send for Pinned {}

impl Pinned {
    /// `len` bytes, all 0.
    ///
    /// # Errors
    /// The system does not lock that much memory.
    pub fn new(cuda: &Cuda, len: usize) -> Result<Self, CudaError> {
        cuda.bind()?;
        let copied = cuda.event()?;
        // SAFETY: the context is bound.
        let memory = unsafe { result::malloc_host(len.max(1), 0) }
            .map_err(CudaError::driver(format!("locking {len} bytes of host memory")))?
            .cast::<u8>();
        // SAFETY: the memory has `len` bytes.
        unsafe { memory.write_bytes(0, len) };
        Ok(Self { memory, len, copied, stream: cuda.stream().clone() })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory as elements, once the last copy from it is done.
    ///
    /// # Errors
    /// Work on the device failed.
    pub fn elements<T: Element>(&mut self) -> Result<&mut [T], CudaError> {
        self.copied.wait()?;
        // SAFETY: the memory has `len` initialised bytes, is ours, and the device reads it no more.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.memory, self.len) };
        // It begins with a page.
        Ok(bytemuck::cast_slice_mut(bytes))
    }

    /// Asks for a copy of the memory to `to`.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to(&mut self, to: ViewMut<'_>) -> Result<(), CudaError> {
        self.copy(to)?;
        self.copied.record()
    }

    /// The same as a part of recorded work, in which an event would be none that can be waited for: whoever replays it waits
    /// for the device before the elements change ([`Graph::replay`](super::Graph::replay)).
    pub(crate) fn copy_again(&mut self, to: ViewMut<'_>) -> Result<(), CudaError> {
        self.copy(to)
    }

    fn copy(&mut self, to: ViewMut<'_>) -> Result<(), CudaError> {
        assert_eq!(self.len, to.byte_len(), "a copy has one length");
        self.stream.bind()?;
        // SAFETY: as in `elements`; nobody writes the memory before the copy is done: `elements` waits for `copied`, and
        // who replays recorded copies waits for the device.
        let from = unsafe { std::slice::from_raw_parts(self.memory, self.len) };
        let to = to.untyped_address();
        // SAFETY: `to` is device memory of the same length, exclusively ours.
        unsafe { result::memcpy_htod_async(to, from, self.stream.raw()) }
            .map_err(CudaError::driver("copying to the GPU"))
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
        write!(f, "Pinned({} bytes)", self.len)
    }
}
