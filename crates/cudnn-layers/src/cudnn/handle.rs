//! A handle of cuDNN, and the convolutions that it runs.

use super::{
    ConvDescriptors, CudnnError, CudnnVersion,
    api::{call, version},
};
use crate::conv::operands::operand_lens;
use cudarc::cudnn::sys;
use planner::ConvOp;
use std::{
    ffi::c_void,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};
use tensor::{
    Accumulate, Arena, ElementType, Out, Span, View, ViewMut,
    cuda::{Cuda, Library, Stream},
};

/// cuDNN 9.0: the oldest whose status codes and error texts we know.
const OLDEST: CudnnVersion = CudnnVersion(90_000);

/// A handle of cuDNN. Clones share it and take turns.
#[derive(Clone)]
pub struct Cudnn(Arc<Handle>);

/// A workspace of so many bytes counts as none. Many engines want some, so a handle has as much for itself: its
/// convolutions run one after the other.
pub(crate) const SMALL_WORKSPACE: usize = 1 << 10;

struct Handle {
    raw: Mutex<RawHandle>,
    /// Where it works.
    stream: Stream,
    /// A small workspace, and where it begins.
    _spare: Arena,
    spare_address: u64,
}

struct RawHandle(sys::cudnnHandle_t);

// SAFETY: cuDNN lets any thread use a handle, one at a time.
unsafe impl Send for RawHandle {}

impl Cudnn {
    /// The handle of a device, which works in its stream.
    ///
    /// # Errors
    /// cuDNN is too old, or does not work with this driver or GPU.
    pub fn of(cuda: &Cuda) -> Result<Self, CudnnError> {
        cuda.with_library(|cudnn: &mut Self| Ok(cudnn.clone()))
    }

    /// The address of [`SMALL_WORKSPACE`] bytes.
    pub(super) fn spare(&self) -> u64 {
        self.0.spare_address
    }

    /// Calls the library with the handle, on the handle's GPU.
    pub(super) fn with<R>(
        &self,
        work: impl FnOnce(sys::cudnnHandle_t) -> Result<R, CudnnError>,
    ) -> Result<R, CudnnError> {
        self.0.stream.bind()?;
        let raw = self.0.raw.lock().unwrap_or_else(PoisonError::into_inner);
        work(raw.0)
    }

    /// Bytes of workspace that `algorithm` needs for the convolution that `descriptors` describe.
    pub(crate) fn workspace_bytes(
        &self,
        algorithm: LegacyAlgorithm,
        descriptors: &ConvDescriptors,
    ) -> Result<usize, CudnnError> {
        let ConvDescriptors { x, w, y, convolution, .. } = descriptors;
        let (x, w, y, c, mut bytes) = (x.raw(), w.raw(), y.raw(), convolution.raw(), 0);
        // SAFETY: the handle is alive during the call, the descriptors as `descriptors` is, and set; a size is written
        // to.
        let asked = |h| unsafe {
            match algorithm {
                LegacyAlgorithm::Forward(raw) => {
                    call!(cudnnGetConvolutionForwardWorkspaceSize(h, x, w, c, y, raw, &mut bytes))
                }
                LegacyAlgorithm::BackwardData(raw) => {
                    call!(cudnnGetConvolutionBackwardDataWorkspaceSize(h, w, y, c, x, raw, &mut bytes))
                }
                LegacyAlgorithm::BackwardFilter(raw) => {
                    call!(cudnnGetConvolutionBackwardFilterWorkspaceSize(h, x, y, c, w, raw, &mut bytes))
                }
            }
        };
        self.with(asked).map(|()| bytes)
    }

    /// Launches one convolution, and does not wait for it. Operands as in the table of [`crate::conv`].
    pub(crate) fn convolve(
        &self,
        algorithm: LegacyAlgorithm,
        descriptors: &ConvDescriptors,
        [a, b]: [View<'_>; 2],
        Out { to: out, accumulate }: Out<'_>,
        mut workspace: ViewMut<'_>,
    ) -> Result<(), CudnnError> {
        let lens = operand_lens(algorithm.op(), &descriptors.geometry);
        assert_eq!([a.len(), b.len(), out.len()], lens, "operands of {algorithm:?}");
        let dtypes = [a.format(), b.format(), out.format()].map(|format| format.dtype);
        assert_eq!(dtypes, [ElementType::F32; 3], "operands of {algorithm:?}");
        let one: *const c_void = (&raw const ONE).cast();
        let beta: *const c_void = match accumulate {
            Accumulate::Replace => (&raw const ZERO).cast(),
            Accumulate::Add => one,
        };
        let [a, b] = [a, b].map(|operand| operand.numbers() as *const c_void);
        let out = out.numbers() as *mut c_void;
        let (scratch, len) = (workspace.address::<u8>() as *mut c_void, workspace.len());
        let ConvDescriptors { x, w, y, convolution, .. } = descriptors;
        let (x, w, y, c) = (x.raw(), w.raw(), y.raw(), convolution.raw());
        // SAFETY: handle and descriptors are alive and set. The operands are device memory of the lengths that the
        // descriptors say (asserted above), `out` and `workspace` exclusively ours; cuDNN checks the workspace's size.
        // The work goes to the stream through which all else on this memory goes, so it needs no waiting.
        self.with(|h| unsafe {
            match algorithm {
                LegacyAlgorithm::Forward(raw) => {
                    call!(cudnnConvolutionForward(h, one, x, a, w, b, c, raw, scratch, len, beta, y, out))
                }
                // Here cuDNN has the filter first.
                LegacyAlgorithm::BackwardData(raw) => {
                    call!(cudnnConvolutionBackwardData(
                        h, one, w, b, y, a, c, raw, scratch, len, beta, x, out
                    ))
                }
                LegacyAlgorithm::BackwardFilter(raw) => {
                    call!(cudnnConvolutionBackwardFilter(
                        h, one, x, a, y, b, c, raw, scratch, len, beta, w, out
                    ))
                }
            }
        })
    }
}

impl Library for Cudnn {
    type Error = CudnnError;

    fn new(stream: &Stream) -> Result<Self, CudnnError> {
        stream.bind()?;
        let found = version();
        if found < OLDEST {
            return Err(CudnnError::TooOld { found, needed: OLDEST });
        }
        let mut spare = Arena::unset(stream, SMALL_WORKSPACE)?;
        let spare_address = spare.view_mut(Span::bytes(0, SMALL_WORKSPACE)).address::<u8>();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the address of a handle is written to.
        unsafe { call!(cudnnCreate(&mut handle)) }?;
        let raw = Mutex::new(RawHandle(handle));
        let cudnn = Self(Arc::new(Handle { raw, stream: stream.clone(), _spare: spare, spare_address }));
        // SAFETY: the handle was just made; it is destroyed before its stream, which it keeps.
        unsafe { call!(cudnnSetStream(handle, stream.raw().cast())) }?;
        Ok(cudnn)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.stream.bind().is_ok() {
            let RawHandle(handle) = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the handle is ours, and is not used again. Should this fail, there is nothing left to be done.
            let _ = unsafe { call!(cudnnDestroy(*handle)) };
        }
    }
}

impl fmt::Debug for Cudnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cudnn({})", version())
    }
}

/// Driver, CUDA and cuDNN on `cuda`, for a report and as part of what identifies measurements: those of versions
/// of this program that had no engines, or no products by cuBLAS, lack them.
pub fn versions(cuda: &Cuda) -> String {
    format!("cuDNN {} with engines and cuBLAS, {}", version(), cuda.versions())
}

static ONE: f32 = 1.0;
static ZERO: f32 = 0.0;

/// An algorithm of cuDNN's legacy API, which belongs to one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LegacyAlgorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    BackwardData(sys::cudnnConvolutionBwdDataAlgo_t),
    BackwardFilter(sys::cudnnConvolutionBwdFilterAlgo_t),
}

impl LegacyAlgorithm {
    pub(crate) const fn op(self) -> ConvOp {
        match self {
            Self::Forward(_) => ConvOp::Forward,
            Self::BackwardData(_) => ConvOp::BackwardData,
            Self::BackwardFilter(_) => ConvOp::BackwardFilter,
        }
    }
}
