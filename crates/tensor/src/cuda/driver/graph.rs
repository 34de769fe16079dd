//! Work recorded once and replayed: one call in the place of hundreds, whose launches take longer than they do.

use super::{Cuda, Stream};
use crate::cuda::{CudaError, Result};
use cudarc::driver::{self, sys};

/// Recorded work on one device. It is replayed on the very memory that it was recorded with.
pub struct CudaGraph {
    graph: driver::CudaGraph,
    stream: Stream,
}

// SAFETY: a graph belongs to no thread; only its owner launches it.
unsafe impl Send for CudaGraph {}

impl Cuda {
    /// Records all that `work` asks of the device, which does none of it. `work` must not wait for the device, nor ask
    /// for memory; what it launches should have run before, so that nothing has to be loaded.
    ///
    /// # Errors
    /// What `work` returns, or work that cannot be recorded.
    pub fn record<E: From<CudaError>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<CudaGraph, E> {
        let stream = self.stream();
        let failed = || CudaError::driver("recording work for the GPU");
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.0.begin_capture(mode).map_err(failed())?;
        let asked = work();
        let graph = stream.0.end_capture(sys::CUgraphInstantiate_flags(0)).map_err(failed());
        asked?;
        let graph = graph?.ok_or_else(|| CudaError::new("recording work for the GPU", "there was none"))?;
        Ok(CudaGraph { graph, stream: stream.clone() })
    }
}

impl CudaGraph {
    /// Asks for all of the recorded work.
    ///
    /// # Safety
    /// All memory that the work was recorded with is still allocated, nobody else uses it before the device is waited
    /// for, and what was loaded for it (descriptors, CUDA kernels) is still there.
    pub unsafe fn replay(&mut self) -> Result<()> {
        self.graph.launch().map_err(CudaError::driver("replaying work on the GPU"))
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        // It may be at work. If the device is lost, there is nothing to wait for.
        let _ = self.stream.synchronize();
    }
}
