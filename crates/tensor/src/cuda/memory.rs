//! Device memory: one allocation, and views of it.

use super::{CudaError, Stream};
use crate::arena::{self, Access, ArenaError, Lease, Span};
use cudarc::driver::{result, sys::CUdeviceptr};
use std::{marker::PhantomData, ops::Range};

/// One allocation of device memory; buffers are [`Span`]s of it. Its contents are what they were before.
#[derive(Debug)]
pub struct DeviceArena {
    stream: Stream,
    base: CUdeviceptr,
    len: usize,
}

/// A read-only run of elements in device memory.
#[derive(Clone, Copy, Debug)]
pub struct DeviceView<'a> {
    address: CUdeviceptr,
    len: usize,
    memory: PhantomData<&'a f32>,
}

/// A writable run of elements in device memory.
#[derive(Debug)]
pub struct DeviceViewMut<'a> {
    address: CUdeviceptr,
    len: usize,
    memory: PhantomData<&'a mut f32>,
}

impl DeviceArena {
    /// Room for `len` elements on the device of `stream`.
    ///
    /// # Errors
    /// The device has not that much memory left.
    pub fn new(stream: &Stream, len: usize) -> Result<Self, CudaError> {
        stream.bind()?;
        let bytes = len.max(1).saturating_mul(size_of::<f32>());
        // SAFETY: the context is bound; the memory's contents are unset, and every bit pattern is a valid `f32`.
        let base = unsafe { result::malloc_sync(bytes) }
            .map_err(CudaError::driver(format!("allocating {bytes} bytes of GPU memory")))?;
        Ok(Self { stream: stream.clone(), base, len })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One buffer for reading.
    ///
    /// # Panics
    /// If the span lies outside.
    pub fn view(&self, span: Span) -> DeviceView<'_> {
        DeviceView { address: self.address(span), len: span.len, memory: PhantomData }
    }

    /// One buffer for writing.
    ///
    /// # Panics
    /// If the span lies outside.
    pub fn view_mut(&mut self, span: Span) -> DeviceViewMut<'_> {
        DeviceViewMut { address: self.address(span), len: span.len, memory: PhantomData }
    }

    /// Several buffers at once, in the order of `requests`. A written buffer may overlap no other one.
    ///
    /// # Errors
    /// [`ArenaError`] for an overlap with a written buffer or a buffer outside.
    pub fn lease(&mut self, requests: &[(Span, Access)]) -> Result<Vec<Lease<'_>>, ArenaError> {
        arena::check(requests, self.len)?;
        let lease = |&(span, access): &(Span, Access)| {
            let (address, len) = (self.address(span), span.len);
            match access {
                Access::Read => Lease::Read(DeviceView { address, len, memory: PhantomData }.into()),
                Access::Write => Lease::Write(DeviceViewMut { address, len, memory: PhantomData }.into()),
            }
        };
        Ok(requests.iter().map(lease).collect())
    }

    /// Copies `values` from the host to the beginning of `span`, and waits for it.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Panics
    /// If the span lies outside or is shorter than `values`.
    pub fn upload(&mut self, span: Span, values: &[f32]) -> Result<(), CudaError> {
        assert!(values.len() <= span.len, "{} values do not fit in {}", values.len(), span.len);
        self.stream.bind()?;
        // SAFETY: the destination is `span`, which `address` checked and which is long enough. `values` is read until the
        // stream is waited for below, and stays borrowed until then.
        unsafe { result::memcpy_htod_async(self.address(span), values, self.stream.raw()) }
            .map_err(CudaError::driver("copying to the GPU"))?;
        self.stream.synchronize()
    }

    /// Fills `span` with `pattern`, over and over.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Panics
    /// If the span lies outside, or the pattern is empty.
    pub fn repeat(&mut self, span: Span, pattern: &[f32]) -> Result<(), CudaError> {
        assert!(!pattern.is_empty(), "an empty pattern fills nothing");
        let mut filled = pattern.len().min(span.len);
        self.upload(span, &pattern[..filled])?;
        while filled < span.len {
            // What is there already is copied behind itself: the pattern doubles with every copy.
            let len = filled.min(span.len - filled);
            let (from, bytes) = (self.address(span), len * size_of::<f32>());
            let to = self.address(Span { offset: span.offset + filled, len });
            // SAFETY: both runs lie in `span`, one behind the other, so they do not overlap.
            unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream.raw()) }
                .map_err(CudaError::driver("copying on the GPU"))?;
            filled += len;
        }
        Ok(())
    }

    /// Fills all of it with zeros.
    ///
    /// # Errors
    /// The device is lost.
    pub fn zero(&mut self) -> Result<(), CudaError> {
        let stream = self.stream.clone();
        self.view_mut(Span { offset: 0, len: self.len }).zero(&stream)
    }

    /// Fills `span` with NaN: what nobody may read before it is written.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Panics
    /// If the span lies outside.
    pub fn poison(&mut self, span: Span) -> Result<(), CudaError> {
        let stream = self.stream.clone();
        // All bits set is a NaN.
        self.view_mut(span).memset(&stream, 0xff)
    }

    /// The elements of `span`, copied to the host after all work asked for so far.
    ///
    /// # Errors
    /// Earlier work failed, or the device is lost.
    ///
    /// # Panics
    /// If the span lies outside.
    pub fn download(&self, span: Span) -> Result<Vec<f32>, CudaError> {
        self.stream.bind()?;
        let mut values = vec![0.0f32; span.len];
        // SAFETY: the source is `span`, which `address` checked; `values` is as long and is not touched before the stream
        // is waited for below.
        unsafe { result::memcpy_dtoh_async(&mut values, self.address(span), self.stream.raw()) }
            .map_err(CudaError::driver("copying from the GPU"))?;
        self.stream.synchronize()?;
        Ok(values)
    }

    fn address(&self, span: Span) -> CUdeviceptr {
        let end = span.offset.checked_add(span.len);
        assert!(end.is_some_and(|end| end <= self.len), "{span:?} lies outside {} elements", self.len);
        self.base + (span.offset * size_of::<f32>()) as CUdeviceptr
    }
}

impl Drop for DeviceArena {
    fn drop(&mut self) {
        // The work may still use the memory. If the device is lost, so is the memory: nothing is left to be done then.
        let idle = self.stream.bind().and_then(|()| self.stream.synchronize());
        if idle.is_ok() {
            // SAFETY: `base` comes from the allocation in `new`, is freed only here, and no work uses it any more.
            let _ = unsafe { result::free_sync(self.base) };
        }
    }
}

impl<'a> DeviceView<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements `range` of this view.
    ///
    /// # Panics
    /// If the range does not lie inside.
    pub fn slice(&self, range: Range<usize>) -> DeviceView<'a> {
        let address = slice(self.address, self.len, &range);
        DeviceView { address, len: range.len(), memory: PhantomData }
    }

    /// The device address of the first element.
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }
}

impl<'a> DeviceViewMut<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements `range` of this view.
    ///
    /// # Panics
    /// If the range does not lie inside.
    pub fn slice(&mut self, range: Range<usize>) -> DeviceViewMut<'_> {
        let address = slice(self.address, self.len, &range);
        DeviceViewMut { address, len: range.len(), memory: PhantomData }
    }

    /// The first `mid` elements, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn split_at(self, mid: usize) -> (DeviceViewMut<'a>, DeviceViewMut<'a>) {
        let part = |range: Range<usize>| {
            let address = slice(self.address, self.len, &range);
            DeviceViewMut { address, len: range.len(), memory: PhantomData }
        };
        (part(0..mid), part(mid..self.len))
    }

    /// The same elements, read-only, for as long as `self` stays borrowed.
    pub fn as_view(&self) -> DeviceView<'_> {
        DeviceView { address: self.address, len: self.len, memory: PhantomData }
    }

    /// The same elements for a shorter time.
    pub fn reborrow(&mut self) -> DeviceViewMut<'_> {
        DeviceViewMut { address: self.address, len: self.len, memory: PhantomData }
    }

    /// The device address of the first element.
    pub fn address(&mut self) -> CUdeviceptr {
        self.address
    }

    /// Asks for zeros to be written.
    ///
    /// # Errors
    /// The device is lost.
    pub fn zero(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.memset(stream, 0)
    }

    fn memset(&mut self, stream: &Stream, byte: u8) -> Result<(), CudaError> {
        stream.bind()?;
        // SAFETY: the view is of so many elements, and exclusive; any bit pattern is an `f32`.
        unsafe { result::memset_d8_async(self.address, byte, self.len * size_of::<f32>(), stream.raw()) }
            .map_err(CudaError::driver("filling GPU memory"))
    }
}

fn slice(address: CUdeviceptr, len: usize, range: &Range<usize>) -> CUdeviceptr {
    assert!(range.start <= range.end && range.end <= len, "{range:?} lies outside {len} elements");
    address + (range.start * size_of::<f32>()) as CUdeviceptr
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::probe;

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn memory_holds_what_was_put_there() {
        let cuda = probe().unwrap().open(0).unwrap();
        let mut arena = DeviceArena::new(cuda.stream(), 100).unwrap();
        let [a, b] = [Span { offset: 0, len: 60 }, Span { offset: 60, len: 40 }];
        arena.poison(a).unwrap();
        arena.repeat(b, &[1.0, 2.0, 3.0]).unwrap();
        arena.upload(Span { offset: 2, len: 2 }, &[7.0, 8.0]).unwrap();
        let values = arena.download(Span { offset: 0, len: 100 }).unwrap();
        assert_eq!(values[2..4], [7.0, 8.0]);
        assert!(values[..2].iter().chain(&values[4..60]).all(|value| value.is_nan()));
        assert!(values[60..].iter().enumerate().all(|(i, &value)| value == [1.0, 2.0, 3.0][i % 3]));
        assert!(arena.lease(&[(a, Access::Write), (b, Access::Read)]).is_ok());
        assert!(arena.lease(&[(a, Access::Write), (Span { offset: 59, len: 2 }, Access::Read)]).is_err());
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn too_much_memory_is_an_error_and_the_device_lives_on() {
        let cuda = probe().unwrap().open(0).unwrap();
        let error = DeviceArena::new(cuda.stream(), 1 << 50).unwrap_err().to_string();
        assert!(error.contains("OUT_OF_MEMORY"), "{error}");
        assert!(DeviceArena::new(cuda.stream(), 16).is_ok());
    }
}
