//! A context and the queues in which its work is done, one piece after the other.

use crate::cuda::{CudaError, Result};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use std::sync::Arc;

/// A queue of work, done in the order in which it was launched. Clones share it; it lives as long as any of them. A GPU
/// has one for all that it computes, and others, if any, for copies ([`Cuda::new_stream`](super::Cuda::new_stream)).
#[derive(Clone, Debug)]
pub struct Stream(pub(super) Arc<CudaStream>);

impl Stream {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self> {
        context.new_stream().map(Self).map_err(CudaError::driver("creating a stream"))
    }

    /// Makes the device the calling thread's own: libraries that take no context look there.
    pub fn bind(&self) -> Result<()> {
        self.0.context().bind_to_thread().map_err(CudaError::driver("selecting the GPU"))
    }

    /// Waits until all work asked for so far is done.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize().map_err(CudaError::driver("work on the GPU"))
    }

    /// The raw stream, for libraries that are told where to work. It lives as long as any clone of `self`.
    pub fn raw(&self) -> sys::CUstream {
        self.0.cu_stream()
    }

    /// Has all work launched in this stream from now on wait, on the device, until `event` is reached as it was
    /// recorded last. The host does not wait. Once recorded work waits for an event that was recorded in it, this
    /// stream is a part of it, until the stream that the recording began with waits for an event of this one.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.0.wait(&event.event).map_err(CudaError::driver("waiting for an event on the GPU"))
    }

    /// An event of this stream, not recorded yet.
    pub fn event(&self) -> Result<Event> {
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let event = self.0.context().new_event(flags).map_err(CudaError::driver("creating an event"))?;
        Ok(Event { event, stream: self.clone() })
    }
}

/// A point in a stream that the host and other streams can wait for, and whose time can be read afterwards.
#[derive(Debug)]
pub struct Event {
    event: CudaEvent,
    pub(super) stream: Stream,
}

impl Event {
    /// Marks the point after all work launched in its stream so far.
    pub fn record(&self) -> Result<()> {
        self.event.record(&self.stream.0).map_err(CudaError::driver("recording an event"))
    }

    /// Waits until the point is reached.
    pub fn wait(&self) -> Result<()> {
        self.event.synchronize().map_err(CudaError::driver("work on the GPU"))
    }

    /// Waits for both points and returns the milliseconds from this one to `end`.
    ///
    /// # Errors
    /// One was never recorded.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f64> {
        self.event.elapsed_ms(&end.event).map(f64::from).map_err(CudaError::driver("timing work on the GPU"))
    }
}
