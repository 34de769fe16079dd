//! How a CUDA kernel says that its data is out of range.

use super::{CudaError, Stream};
use cudarc::driver::{result, sys};
use std::ffi::c_void;

/// Sixteen bytes of host memory that the device can write.
pub(super) struct FaultCell {
    host: *mut [u32; 4],
    address: sys::CUdeviceptr,
    stream: Stream,
}

// SAFETY: the memory belongs to the cell and is reached from any thread as from another; `take` waits for no one and
// reads what one 16-byte store of the device put there.
unsafe impl Send for FaultCell {}
// SAFETY: as above. Two threads that take at once may both get the fault; neither gets half of one.
unsafe impl Sync for FaultCell {}

impl FaultCell {
    pub(super) fn new(stream: &Stream) -> Result<Self, CudaError> {
        stream.bind()?;
        let failed = || CudaError::driver("allocating host memory that the GPU can write");
        // SAFETY: the context is bound; the memory is initialised right below, before anyone else knows of it.
        let host = unsafe { result::malloc_host(size_of::<[u32; 4]>(), sys::CU_MEMHOSTALLOC_DEVICEMAP) }
            .map_err(failed())?
            .cast::<[u32; 4]>();
        let mut address = 0;
        // SAFETY: `host` points to 16 bytes of ours, aligned to a page; the driver writes an address.
        unsafe {
            host.write([0; 4]);
            sys::cuMemHostGetDevicePointer_v2(&mut address, host.cast(), 0).result().map_err(failed())?;
        }
        Ok(Self { host, address, stream: stream.clone() })
    }

    pub(super) fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    pub(super) fn take(&self) -> Option<[u32; 4]> {
        // SAFETY: the memory is ours as long as `self` lives. The device may write it at any time, hence volatile.
        let fault = unsafe {
            let fault = self.host.read_volatile();
            self.host.write_volatile([0; 4]);
            fault
        };
        (fault[0] != 0).then_some(fault)
    }
}

impl Drop for FaultCell {
    fn drop(&mut self) {
        if self.stream.bind().and_then(|()| self.stream.synchronize()).is_ok() {
            // SAFETY: the memory comes from `malloc_host`, and no work uses it any more.
            let _ = unsafe { result::free_host(self.host.cast::<c_void>()) };
        }
    }
}
