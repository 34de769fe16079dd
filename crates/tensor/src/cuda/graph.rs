//! Work recorded once and replayed: one call in the place of hundreds, where starting CUDA kernels takes longer than they do.

use super::{Cuda, CudaError, Stream};
use cudarc::driver::{result, sys};

/// Recorded work on one device. It is replayed on the very memory that it was recorded with.
#[derive(Debug)]
pub struct CudaGraph {
    executable: sys::CUgraphExec,
    graph: sys::CUgraph,
    stream: Stream,
}

// SAFETY: a graph belongs to no thread; only its owner launches it.
unsafe impl Send for CudaGraph {}

impl Cuda {
    /// Records all that `work` asks of the device, which does none of it. `work` must not wait for the device, nor ask for
    /// memory; what it launches should have run before, so that nothing has to be loaded.
    ///
    /// # Errors
    /// What `work` returns, or work that cannot be recorded.
    pub fn record<E: From<CudaError>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<CudaGraph, E> {
        let stream = self.stream();
        stream.bind()?;
        let failed = || CudaError::driver("recording work for the GPU");
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive, and all of our work goes through it.
        unsafe { result::stream::begin_capture(stream.raw(), mode) }.map_err(failed())?;
        self.set_recording(true);
        let asked = work();
        self.set_recording(false);
        // SAFETY: as above; the recording began right there.
        let graph = unsafe { result::stream::end_capture(stream.raw()) }.map_err(failed());
        asked?;
        let mut graph = CudaGraph { executable: std::ptr::null_mut(), graph: graph?, stream: stream.clone() };
        // SAFETY: the graph was just recorded; the address of a handle is written to.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut graph.executable, graph.graph, 0) }
            .result()
            .map_err(failed())?;
        Ok(graph)
    }
}

impl CudaGraph {
    /// Asks for all of the recorded work.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Safety
    /// All memory that the work was recorded with is still allocated, nobody else uses it before the device is waited for,
    /// and what was loaded for it (descriptors, CUDA kernels) is still there.
    pub unsafe fn replay(&mut self) -> Result<(), CudaError> {
        self.stream.bind()?;
        // SAFETY: the graph is alive; what it touches is the caller's promise.
        unsafe { result::graph::launch(self.executable, self.stream.raw()) }
            .map_err(CudaError::driver("replaying work on the GPU"))
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.stream.bind().and_then(|()| self.stream.synchronize()).is_ok() {
            // SAFETY: both are ours, made in `record` (or never made, and null), and no longer at work.
            unsafe {
                if !self.executable.is_null() {
                    let _ = result::graph::exec_destroy(self.executable);
                }
                let _ = result::graph::destroy(self.graph);
            }
        }
    }
}
