//! Page-locked host memory, which the device copies from and to by itself while the host goes on.

use super::{Event, Stream};
use crate::{Element, View, ViewMut, cuda::CudaError, cuda::Result};
use cudarc::driver::result;
use std::ffi::c_void;

/// Page-locked host memory, and the point after which the host may touch it again.
#[derive(Debug)]
pub struct Pinned {
    memory: *mut u8,
    len: usize,
    copied: Event,
}

// SAFETY: the memory belongs to this value alone, and any thread may touch it.
unsafe impl Send for Pinned {}

impl Pinned {
    /// `len` bytes, all 0, for copies in `stream`.
    pub fn new(stream: &Stream, len: usize) -> Result<Self> {
        stream.bind()?;
        let copied = stream.event()?;
        // SAFETY: the context is bound.
        let memory = unsafe { result::malloc_host(len.max(1), 0) }
            .map_err(CudaError::driver(format!("locking {len} bytes of host memory")))?
            .cast::<u8>();
        // SAFETY: the memory has `len` bytes.
        unsafe { memory.write_bytes(0, len) };
        Ok(Self { memory, len, copied })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where a GPU finds it: devices and hosts of 64 bits share one space of addresses.
    pub(super) fn device_address(&self) -> u64 {
        self.memory.addr() as u64
    }

    /// The memory as elements, once the last [`Pinned::copy_to`] is done.
    pub fn elements<T: Element>(&mut self) -> Result<&mut [T]> {
        self.copied.wait()?;
        // SAFETY: the memory has `len` initialised bytes, is ours, and the device uses it no more.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.memory, self.len) };
        // It begins with a page.
        Ok(bytemuck::cast_slice_mut(bytes))
    }

    /// Launches a copy of the first bytes to `to`, behind all work that was launched in its stream before.
    ///
    /// # Panics
    /// If `to` is longer.
    pub fn copy_to(&mut self, to: ViewMut<'_>) -> Result<()> {
        // SAFETY: a stream's work is done in order; the host touches the memory only after `copied`.
        unsafe { self.upload_in(&self.copied.stream, 0, to)? };
        self.copied.record()
    }

    /// Launches a copy of the bytes from `offset` on to `to` in `stream`, which may be a copy stream and may be
    /// recorded.
    ///
    /// # Safety
    /// Until the copy is done nobody else uses `to` or writes these bytes, and `self` is not dropped. Other streams
    /// know by an event of `stream` ([`Stream::wait`]), the host by waiting for one; [`Pinned::elements`] knows nothing
    /// of it.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub unsafe fn upload_in(&self, stream: &Stream, offset: usize, to: ViewMut<'_>) -> Result<()> {
        let len = to.byte_len();
        self.check(offset, len);
        stream.bind()?;
        // SAFETY: the bytes lie inside, and nobody writes them before the copy is done, by the caller's promise.
        let from = unsafe { std::slice::from_raw_parts(self.memory.add(offset), len) };
        // SAFETY: `to` is device memory of the same length, exclusively ours.
        unsafe { result::memcpy_htod_async(to.untyped_address(), from, stream.raw()) }
            .map_err(CudaError::driver("copying to the GPU"))
    }

    /// Launches a copy of `from` to the bytes from `offset` on, likewise.
    ///
    /// # Safety
    /// Until the copy is done nobody writes `from` or uses these bytes, and `self` is not dropped; see
    /// [`Pinned::upload_in`].
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub unsafe fn download_in(&self, stream: &Stream, from: View<'_>, offset: usize) -> Result<()> {
        let len = from.byte_len();
        self.check(offset, len);
        stream.bind()?;
        // SAFETY: the bytes lie inside, and nobody uses them before the copy is done, by the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(self.memory.add(offset), len) };
        // SAFETY: `from` is device memory of the same length.
        unsafe { result::memcpy_dtoh_async(to, from.untyped_address(), stream.raw()) }
            .map_err(CudaError::driver("copying from the GPU"))
    }

    fn check(&self, offset: usize, len: usize) {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "{len} bytes from {offset} on are not in {}", self.len);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.copied.stream.bind().and_then(|()| self.copied.wait()).is_ok() {
            // SAFETY: the memory comes from `malloc_host`, and the device uses it no more.
            let _ = unsafe { result::free_host(self.memory.cast::<c_void>()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, Cursor, Format, cuda::probe};

    /// Recorded work forks to a copy stream and joins again: what a replay computes is copied out, and what the host
    /// put beside it is copied in, in the order of the events.
    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn cuda_copy_streams_are_ordered_by_events_and_recorded() {
        const LEN: usize = 1 << 22;
        let cuda = probe().unwrap().open(0).unwrap();
        let copies = cuda.new_stream().unwrap();
        let mut cursor = Cursor::default();
        let [kept, gone] = [(); 2].map(|()| cursor.take(Format::U8, LEN));
        let mut arena = Arena::unset(cuda.stream(), cursor.end()).unwrap();
        let mut slab = Pinned::new(cuda.stream(), 2 * LEN).unwrap();
        let [computed, copied] = [cuda.stream().event().unwrap(), copies.event().unwrap()];
        let work = |arena: &mut Arena, slab: &Pinned| -> Result<()> {
            let ([from], [to]) = arena.lease([kept], [gone]).unwrap();
            computed.record()?;
            copies.wait(&computed)?;
            // SAFETY: the stream waits for what the copy reads; the device's waits for both copies before it goes on,
            // and the host for the device.
            unsafe {
                slab.download_in(&copies, from, LEN)?;
                slab.upload_in(&copies, 0, to)?;
            }
            copied.record()?;
            cuda.stream().wait(&copied)?;
            // Were the copy out not done by now, it would find this.
            arena.set(kept, 0xee)
        };
        let graph = cuda.record(|| work(&mut arena, &slab));
        let mut graph = graph.unwrap();
        for value in 1..=3u8 {
            slab.elements::<u8>().unwrap().fill(10 * value);
            arena.set(kept, value).unwrap();
            // SAFETY: arena and slab live on and are not touched before the device is waited for.
            unsafe { graph.replay() }.unwrap();
            cuda.check().unwrap();
            assert!(slab.elements::<u8>().unwrap()[LEN..].iter().all(|&byte| byte == value));
            assert!(arena.read::<u8>(gone).unwrap().iter().all(|&byte| byte == 10 * value));
            assert!(arena.read::<u8>(kept).unwrap().iter().all(|&byte| byte == 0xee));
        }
    }
}
