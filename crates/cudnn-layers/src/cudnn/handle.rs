//! A handle of cuDNN, and the convolutions that it runs.

use super::{
    ConvDescriptors, CudnnError, CudnnVersion,
    api::{call, version},
};
use crate::conv::operands::operand_lens;
use cudarc::cudnn::sys;
use planner::ConvOp;
use std::ffi::c_void;
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Cuda, Library, Stream},
};

/// cuDNN 9.0: the oldest whose status codes and error texts we know.
const OLDEST: CudnnVersion = CudnnVersion(90_000);

/// cuDNN on one GPU, working in one stream.
#[derive(Debug)]
pub struct Cudnn {
    handle: sys::cudnnHandle_t,
    stream: Stream,
    /// Whether the handle ends with this value.
    owned: bool,
}

/// Calls the function of the three that belongs to the operation of `$algorithm`. `$first` and `$second` are the descriptors
/// of what goes in, in cuDNN's order (backward data has the filter first), `$out` is that of what comes out.
macro_rules! call_for_operation {
    (
        $algorithm:expr, $descriptors:expr, [$forward:ident, $data:ident, $filter:ident],
        |$first:ident, $second:ident, $out:ident, $convolution:ident, $raw:ident| ($($argument:expr),* $(,)?)
    ) => {{
        let ConvDescriptors { x, w, y, convolution, .. } = $descriptors;
        let (x, w, y, $convolution) = (x.raw(), w.raw(), y.raw(), convolution.raw());
        match $algorithm {
            RawAlgorithm::Forward($raw) => {
                let ($first, $second, $out) = (x, w, y);
                call!($forward($($argument),*))
            }
            RawAlgorithm::BackwardData($raw) => {
                let ($first, $second, $out) = (w, y, x);
                call!($data($($argument),*))
            }
            RawAlgorithm::BackwardFilter($raw) => {
                let ($first, $second, $out) = (x, y, w);
                call!($filter($($argument),*))
            }
        }
    }};
}

impl Cudnn {
    fn start(stream: &Stream) -> Result<Self, CudnnError> {
        stream.bind()?;
        let found = version();
        if found < OLDEST {
            return Err(CudnnError::TooOld { found, needed: OLDEST });
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: the address of a handle is written to.
        unsafe { call!(cudnnCreate(&mut handle)) }?;
        let cudnn = Self { handle, stream: stream.clone(), owned: true };
        // SAFETY: the handle was just made; the stream lives as long as `cudnn.stream`, and the handle is destroyed before.
        unsafe { call!(cudnnSetStream(handle, stream.raw().cast())) }?;
        Ok(cudnn)
    }

    /// Somebody else's handle, which stays theirs.
    ///
    /// # Safety
    /// `handle` is one of cuDNN's (9.0 or newer), works in `stream`, outlives the result, and is not used by anyone else while
    /// a call of the result is under way.
    pub unsafe fn borrow(handle: *mut c_void, stream: &Stream) -> Self {
        Self { handle: handle.cast(), stream: stream.clone(), owned: false }
    }

    /// The stream it works in.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The library's version.
    pub fn version(&self) -> CudnnVersion {
        version()
    }

    /// Bytes of workspace that `algorithm` needs for the convolution that `descriptors` describe.
    pub(crate) fn workspace_bytes(
        &self,
        algorithm: RawAlgorithm,
        descriptors: &ConvDescriptors,
    ) -> Result<usize, CudnnError> {
        self.stream.bind()?;
        let mut bytes = 0;
        // SAFETY: handle and descriptors are alive as `self` and `descriptors` are, and set; a size is written to.
        let asked = unsafe {
            call_for_operation!(
                algorithm,
                descriptors,
                [
                    cudnnGetConvolutionForwardWorkspaceSize,
                    cudnnGetConvolutionBackwardDataWorkspaceSize,
                    cudnnGetConvolutionBackwardFilterWorkspaceSize
                ],
                |first, second, out, convolution, raw| (
                    self.handle,
                    first,
                    second,
                    convolution,
                    out,
                    raw,
                    &mut bytes
                )
            )
        };
        asked.map(|()| bytes)
    }

    /// Asks for one convolution, and does not wait for it. Operands as in the table of [`crate::conv`].
    ///
    /// # Panics
    /// If an operand has another length than the descriptors say.
    pub(crate) fn convolve(
        &self,
        algorithm: RawAlgorithm,
        descriptors: &ConvDescriptors,
        [a, b]: [View<'_>; 2],
        mut out: ViewMut<'_>,
        accumulate: Accumulate,
        mut workspace: ViewMut<'_>,
    ) -> Result<(), CudnnError> {
        let lens = operand_lens(algorithm.op(), &descriptors.geometry);
        assert_eq!([a.len(), b.len(), out.len()], lens, "operands of {algorithm:?}");
        let one: *const c_void = (&raw const ONE).cast();
        let beta: *const c_void = match accumulate {
            Accumulate::Replace => (&raw const ZERO).cast(),
            Accumulate::Add => one,
        };
        let (a, b) = (a.address::<f32>() as *const c_void, b.address::<f32>() as *const c_void);
        let (a, b) = if algorithm.op() == ConvOp::BackwardData { (b, a) } else { (a, b) };
        let to = out.address::<f32>() as *mut c_void;
        let (scratch, bytes) = (workspace.address::<u8>() as *mut c_void, workspace.len());
        // SAFETY: handle and descriptors are alive and set. The operands are device memory of the lengths that the
        // descriptors say (asserted above), `out` and `workspace` exclusively ours; cuDNN checks the workspace's size. The
        // work goes to the stream through which all else on this memory goes, so it needs no waiting.
        unsafe {
            call_for_operation!(
                algorithm,
                descriptors,
                [cudnnConvolutionForward, cudnnConvolutionBackwardData, cudnnConvolutionBackwardFilter],
                |first, second, out, convolution, raw| (
                    self.handle,
                    one,
                    first,
                    a,
                    second,
                    b,
                    convolution,
                    raw,
                    scratch,
                    bytes,
                    beta,
                    out,
                    to
                )
            )
        }
    }
}

impl Library for Cudnn {
    type Error = CudnnError;

    /// Starts cuDNN. Fails if it is too old, or does not work with this driver or GPU.
    fn new(stream: &Stream) -> Result<Self, CudnnError> {
        Self::start(stream)
    }
}

// SAFETY: cuDNN lets any thread use a handle, one at a time; there is one `Cudnn` per handle, and it is not `Sync`.
unsafe impl Send for Cudnn {}

impl Drop for Cudnn {
    fn drop(&mut self) {
        if self.owned && self.stream.bind().is_ok() {
            // SAFETY: the handle is ours, and is not used again. Should this fail, there is nothing left to be done.
            let _ = unsafe { call!(cudnnDestroy(self.handle)) };
        }
    }
}

/// Driver, CUDA and cuDNN on `cuda`, for a report.
pub fn versions(cuda: &Cuda) -> String {
    format!("cuDNN {}, {}", version(), cuda.versions())
}

static ONE: f32 = 1.0;
static ZERO: f32 = 0.0;

/// An algorithm of cuDNN's, which belongs to one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawAlgorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    BackwardData(sys::cudnnConvolutionBwdDataAlgo_t),
    BackwardFilter(sys::cudnnConvolutionBwdFilterAlgo_t),
}

impl RawAlgorithm {
    pub(crate) const fn op(self) -> ConvOp {
        match self {
            RawAlgorithm::Forward(_) => ConvOp::Forward,
            RawAlgorithm::BackwardData(_) => ConvOp::BackwardData,
            RawAlgorithm::BackwardFilter(_) => ConvOp::BackwardFilter,
        }
    }
}
