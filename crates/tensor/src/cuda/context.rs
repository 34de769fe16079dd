//! A GPU in use.

use super::{CudaDeviceInfo, CudaError};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use std::{fmt, sync::Arc};

/// A GPU in use: its context and the one stream that all work goes through. Clones share both.
#[derive(Clone)]
pub struct Cuda {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    info: Arc<CudaDeviceInfo>,
}

impl Cuda {
    pub(super) fn open(info: CudaDeviceInfo) -> Result<Self, CudaError> {
        let opening = || CudaError::new(format!("opening GPU {} ({})", info.ordinal, info.name));
        let context = CudaContext::new(info.ordinal).map_err(opening())?;
        let stream = context.new_stream().map_err(opening())?;
        Ok(Self { context, stream, info: Arc::new(info) })
    }

    /// What the device is.
    pub fn info(&self) -> &CudaDeviceInfo {
        &self.info
    }

    /// Makes the device the calling thread's own: libraries that take no context look there.
    ///
    /// # Errors
    /// The device is lost.
    pub fn bind(&self) -> Result<(), CudaError> {
        self.context.bind_to_thread().map_err(CudaError::new("selecting the GPU"))
    }

    /// Waits until all work asked for so far is done.
    ///
    /// # Errors
    /// Some of that work failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.stream.synchronize().map_err(CudaError::new("work on the GPU"))
    }

    /// Bytes of device memory that are free, and all that there are.
    ///
    /// # Errors
    /// The device is lost.
    pub fn memory(&self) -> Result<[u64; 2], CudaError> {
        let (free, total) =
            self.context.mem_get_info().map_err(CudaError::new("asking for the GPU's free memory"))?;
        Ok([free as u64, total as u64])
    }

    /// An event for timing, not recorded yet.
    ///
    /// # Errors
    /// The device is lost or out of memory.
    pub fn event(&self) -> Result<Event, CudaError> {
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let event = self.context.new_event(flags).map_err(CudaError::new("creating an event"))?;
        Ok(Event { event, stream: self.stream.clone() })
    }

    /// The stream, for libraries that are told where to work. It lives as long as any clone of `self`.
    pub fn raw_stream(&self) -> sys::CUstream {
        self.stream.cu_stream()
    }

    /// Whether both are the same device and stream.
    pub fn is_same(&self, other: &Cuda) -> bool {
        Arc::ptr_eq(&self.stream, &other.stream)
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({}: {})", self.info.ordinal, self.info.name)
    }
}

/// A point in the stream whose time can be read afterwards.
pub struct Event {
    event: CudaEvent,
    stream: Arc<CudaStream>,
}

impl Event {
    /// Marks the point after all work asked for so far.
    ///
    /// # Errors
    /// The device is lost.
    pub fn record(&self) -> Result<(), CudaError> {
        self.event.record(&self.stream).map_err(CudaError::new("recording an event"))
    }

    /// Waits for both points and returns the milliseconds from this one to `end`.
    ///
    /// # Errors
    /// Work before one of them failed, or one was never recorded.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f64, CudaError> {
        self.event.elapsed_ms(&end.event).map(f64::from).map_err(CudaError::new("timing work on the GPU"))
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Event")
    }
}
