//! Device memory: one allocation, and copies to and from it.

use super::{Stream, nccl::Nccl};
use crate::{ALIGNMENT, Address, Element, Format, View, ViewMut, cuda::CudaError, cuda::Result};
use cudarc::driver::{result, sys::CUdeviceptr};

/// One allocation of device memory. Its contents are what they were before.
pub(crate) struct DeviceMemory {
    pub(crate) stream: Stream,
    base: CUdeviceptr,
    len: usize,
    /// What allocated it, if that was not the driver.
    nccl: Option<&'static Nccl>,
}

impl DeviceMemory {
    /// `len` bytes, rounded up to a multiple of [`ALIGNMENT`], on the device of `stream`. Those of the other `ranks` can
    /// read them, if NCCL sees to that.
    pub(crate) fn new(stream: &Stream, len: usize, ranks: usize) -> Result<Self> {
        stream.bind()?;
        let (stream, len) = (stream.clone(), len.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX));
        if ranks > 1 {
            let (nccl, mut base) = (Nccl::load()?, 0);
            // SAFETY: the context is bound, and an address is written to.
            if unsafe { (nccl.ncclMemAlloc)(&mut base, len.max(1)) } == 0 {
                return Ok(Self { stream, base, len, nccl: Some(nccl) });
            }
        }
        // SAFETY: the context is bound; the memory's contents are unset, and any bytes are elements.
        let base = unsafe { result::malloc_sync(len.max(1)) }
            .map_err(CudaError::driver(format!("allocating {len} bytes of GPU memory")))?;
        Ok(Self { stream, base, len, nccl: None })
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn address(&self) -> Address {
        Address::Device(self.base)
    }

    /// All of it.
    pub(super) fn view_mut(&mut self) -> ViewMut<'_> {
        // SAFETY: the allocation has so many bytes, and is borrowed.
        unsafe { ViewMut::from_raw(self.address(), self.len, Format::U8) }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // The work may still use the memory. If the device is lost, so is the memory: nothing is left to be done then.
        let idle = self.stream.bind().and_then(|()| self.stream.synchronize());
        if idle.is_ok() {
            // SAFETY: `base` comes from an allocation in `new`, is freed only here, and no work uses it any more.
            let _ = unsafe {
                match self.nccl {
                    Some(nccl) => (nccl.ncclMemFree)(self.base) == 0,
                    None => result::free_sync(self.base).is_ok(),
                }
            };
        }
    }
}

impl Stream {
    /// Copies `values` from the host to `to`, and waits for it.
    pub(crate) fn upload<T: Element>(&self, values: &[T], to: ViewMut<'_>) -> Result<()> {
        assert_eq!(values.len(), to.len(), "a copy has one length");
        self.bind()?;
        // SAFETY: the destination is as long and exclusively ours. `values` is read until the stream is waited for
        // below, and stays borrowed until then.
        unsafe { result::memcpy_htod_async(to.address::<T>(), values, self.raw()) }
            .map_err(CudaError::driver("copying to the GPU"))?;
        self.synchronize()
    }

    /// Copies `from` to the host after all work enqueued so far.
    pub(crate) fn download<T: Element>(&self, from: View<'_>, values: &mut [T]) -> Result<()> {
        assert_eq!(values.len(), from.len(), "a copy has one length");
        self.bind()?;
        // SAFETY: the source is as long; `values` is not touched before the stream is waited for below.
        unsafe { result::memcpy_dtoh_async(values, from.address::<T>(), self.raw()) }
            .map_err(CudaError::driver("copying from the GPU"))?;
        self.synchronize()
    }

    /// Enqueues a copy of `from` to `to`.
    pub(crate) fn copy(&self, from: View<'_>, to: ViewMut<'_>) -> Result<()> {
        assert_eq!(from.byte_len(), to.byte_len(), "a copy has one length");
        self.bind()?;
        let (to, from, len) = (to.untyped_address(), from.untyped_address(), from.byte_len());
        // SAFETY: both are so long, and the destination is exclusively ours.
        unsafe { result::memcpy_dtod_async(to, from, len, self.raw()) }
            .map_err(CudaError::driver("copying on the GPU"))
    }

    /// Enqueues that every byte of `to` is set.
    pub(crate) fn set(&self, to: ViewMut<'_>, byte: u8) -> Result<()> {
        self.bind()?;
        let (address, len) = (to.untyped_address(), to.byte_len());
        // SAFETY: the view is so long, and exclusive; any bytes are elements.
        unsafe { result::memset_d8_async(address, byte, len, self.raw()) }
            .map_err(CudaError::driver("filling GPU memory"))
    }
}
