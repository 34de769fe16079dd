//! The one file that calls cuDNN: its handle, its descriptors' life and death, and its convolutions, each with its status
//! turned into an error that names the call.
//!
//! cuDNN is reached through its legacy API (one call per operation and algorithm), for only there can a caller choose
//! among all algorithms. `alpha` and `beta` do not leave this file: above it there is [`Accumulate`].

pub use crate::cudnn_error::{CudnnError, CudnnVersion};

use crate::{descriptor::ConvDescriptors, status_call::status_call};
use cudarc::cudnn::sys;
use planner::ConvOp;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use tensor::{
    Accumulate,
    cuda::{Cuda, DeviceView, DeviceViewMut, Library, Stream},
};

/// cuDNN 9.0: the oldest whose status codes and error texts we know.
const OLDEST: CudnnVersion = CudnnVersion(90_000);

fn check(call: &'static str, status: Option<c_uint>) -> Result<(), CudnnError> {
    match status {
        Some(0) => Ok(()),
        Some(status) => Err(CudnnError::Call { call, status, detail: name(status) + &last_error() }),
        None => Err(CudnnError::Missing { call }),
    }
}

/// cuDNN's name for a status, one that is newer than this program included.
fn name(status: c_uint) -> String {
    // SAFETY: the library is there, for it has just returned the status; the function's parameter is an enum of C, which is
    // passed as an integer is. It returns a text that lives as long as the library, for any value.
    unsafe {
        match sys::culib().get::<unsafe extern "C" fn(c_uint) -> *const c_char>(b"cudnnGetErrorString\0") {
            Ok(name) => CStr::from_ptr(name(status)).to_string_lossy().into_owned(),
            Err(_) => format!("status {status}"),
        }
    }
}

/// What cuDNN says of the last failure on this thread, in parentheses.
fn last_error() -> String {
    let mut text = [0; 512];
    // SAFETY: cuDNN writes at most as many bytes as it is told, with a zero at the end; the last byte is zero anyway.
    let text = unsafe {
        sys::cudnnGetLastErrorString(text.as_mut_ptr(), text.len() - 1);
        CStr::from_ptr(text.as_ptr())
    };
    let text = text.to_string_lossy();
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

/// cuDNN on one GPU, working in that GPU's stream.
#[derive(Debug)]
pub struct Cudnn {
    handle: sys::cudnnHandle_t,
    stream: Stream,
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
        check("cudnnCreate", unsafe { status_call!(sys::cudnnCreate(&mut handle)) })?;
        let cudnn = Self { handle, stream: stream.clone() };
        // SAFETY: the handle was just made; the stream lives as long as `cudnn.stream`, and the handle is destroyed before.
        check("cudnnSetStream", unsafe { status_call!(sys::cudnnSetStream(handle, stream.raw().cast())) })?;
        Ok(cudnn)
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
        let ConvDescriptors { x, w, y, convolution, .. } = descriptors;
        let (x, w, y, convolution) = (x.raw(), w.raw(), y.raw(), convolution.raw());
        let mut bytes = 0;
        // SAFETY: handle and descriptors are alive as `self` and `descriptors` are, and set; a size is written to.
        let (call, status) = unsafe {
            match algorithm {
                RawAlgorithm::Forward(algorithm) => (
                    "cudnnGetConvolutionForwardWorkspaceSize",
                    status_call!(sys::cudnnGetConvolutionForwardWorkspaceSize(
                        self.handle,
                        x,
                        w,
                        convolution,
                        y,
                        algorithm,
                        &mut bytes,
                    )),
                ),
                RawAlgorithm::BackwardData(algorithm) => (
                    "cudnnGetConvolutionBackwardDataWorkspaceSize",
                    status_call!(sys::cudnnGetConvolutionBackwardDataWorkspaceSize(
                        self.handle,
                        w,
                        y,
                        convolution,
                        x,
                        algorithm,
                        &mut bytes,
                    )),
                ),
                RawAlgorithm::BackwardFilter(algorithm) => (
                    "cudnnGetConvolutionBackwardFilterWorkspaceSize",
                    status_call!(sys::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                        self.handle,
                        x,
                        y,
                        convolution,
                        w,
                        algorithm,
                        &mut bytes,
                    )),
                ),
            }
        };
        check(call, status)?;
        Ok(bytes)
    }

    /// Asks for one convolution, and does not wait for it. Operands as in the table of [`crate::conv`].
    ///
    /// # Panics
    /// If an operand has another length than the descriptors say.
    pub(crate) fn convolve(
        &self,
        algorithm: RawAlgorithm,
        descriptors: &ConvDescriptors,
        [a, b]: [DeviceView<'_>; 2],
        mut out: DeviceViewMut<'_>,
        accumulate: Accumulate,
        mut workspace: DeviceViewMut<'_>,
    ) -> Result<(), CudnnError> {
        let lens = crate::conv::operand_lens(algorithm.op(), &descriptors.geometry);
        assert_eq!([a.len(), b.len(), out.len()], lens, "operands of {algorithm:?}");
        let one: *const c_void = (&raw const ONE).cast();
        let beta: *const c_void = match accumulate {
            Accumulate::Replace => (&raw const ZERO).cast(),
            Accumulate::Add => one,
        };
        let (a, b) = (a.address() as *const c_void, b.address() as *const c_void);
        let out = out.address() as *mut c_void;
        let bytes = workspace.len() * size_of::<f32>();
        let scratch = workspace.address() as *mut c_void;
        let ConvDescriptors { x, w, y, convolution, .. } = descriptors;
        let (x, w, y, convolution) = (x.raw(), w.raw(), y.raw(), convolution.raw());
        // SAFETY: handle and descriptors are alive and set. The operands are device memory of the lengths that the
        // descriptors say (asserted above), `out` and `workspace` exclusively ours; cuDNN checks the workspace's size. The
        // work goes to the stream through which all else on this memory goes, so it needs no waiting.
        let (call, status) = unsafe {
            match algorithm {
                RawAlgorithm::Forward(algorithm) => (
                    "cudnnConvolutionForward",
                    status_call!(sys::cudnnConvolutionForward(
                        self.handle,
                        one,
                        x,
                        a,
                        w,
                        b,
                        convolution,
                        algorithm,
                        scratch,
                        bytes,
                        beta,
                        y,
                        out,
                    )),
                ),
                RawAlgorithm::BackwardData(algorithm) => (
                    "cudnnConvolutionBackwardData",
                    status_call!(sys::cudnnConvolutionBackwardData(
                        self.handle,
                        one,
                        w,
                        b,
                        y,
                        a,
                        convolution,
                        algorithm,
                        scratch,
                        bytes,
                        beta,
                        x,
                        out,
                    )),
                ),
                RawAlgorithm::BackwardFilter(algorithm) => (
                    "cudnnConvolutionBackwardFilter",
                    status_call!(sys::cudnnConvolutionBackwardFilter(
                        self.handle,
                        one,
                        x,
                        a,
                        y,
                        b,
                        convolution,
                        algorithm,
                        scratch,
                        bytes,
                        beta,
                        w,
                        out,
                    )),
                ),
            }
        };
        check(call, status)
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
        if self.stream.bind().is_ok() {
            // SAFETY: the handle is ours, and is not used again. Should this fail, there is nothing left to be done.
            let _ = unsafe { status_call!(sys::cudnnDestroy(self.handle)) };
        }
    }
}

/// Driver, CUDA and cuDNN on `cuda`, for a report.
pub fn versions(cuda: &Cuda) -> String {
    format!("cuDNN {}, {}", version(), cuda.versions())
}

static ONE: f32 = 1.0;
static ZERO: f32 = 0.0;

fn version() -> CudnnVersion {
    // SAFETY: the function only returns a number.
    CudnnVersion(unsafe { sys::cudnnGetVersion() })
}

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

/// What a convolution descriptor is set to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvolutionFields {
    pub(crate) pad: [c_int; 2],
    pub(crate) stride: [c_int; 2],
    pub(crate) dilation: [c_int; 2],
    pub(crate) groups: c_int,
    pub(crate) math: sys::cudnnMathType_t,
}

/// A kind of cuDNN's opaque objects: how one is made and destroyed.
pub(crate) trait Opaque: Copy {
    /// What it is set to.
    type Fields;

    /// A new one, set to `fields`.
    fn create(fields: &Self::Fields) -> Result<Self, CudnnError>;

    /// Ends one.
    ///
    /// # Safety
    /// `self` came from [`Opaque::create`], and neither it nor a copy is used again.
    unsafe fn destroy(self);
}

impl Opaque for sys::cudnnTensorDescriptor_t {
    type Fields = [c_int; 4];

    fn create(&[n, c, h, w]: &[c_int; 4]) -> Result<Self, CudnnError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address of a descriptor is written to; the descriptor is then set.
        unsafe {
            check("cudnnCreateTensorDescriptor", status_call!(sys::cudnnCreateTensorDescriptor(&mut raw)))?;
            let status = status_call!(sys::cudnnSetTensor4dDescriptor(raw, LAYOUT, FLOAT, n, c, h, w));
            or_destroy(raw, check("cudnnSetTensor4dDescriptor", status))
        }
    }

    unsafe fn destroy(self) {
        // SAFETY: the caller's promise.
        let _ = unsafe { status_call!(sys::cudnnDestroyTensorDescriptor(self)) };
    }
}

impl Opaque for sys::cudnnFilterDescriptor_t {
    type Fields = [c_int; 4];

    fn create(&[k, c, r, s]: &[c_int; 4]) -> Result<Self, CudnnError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address of a descriptor is written to; the descriptor is then set.
        unsafe {
            check("cudnnCreateFilterDescriptor", status_call!(sys::cudnnCreateFilterDescriptor(&mut raw)))?;
            let status = status_call!(sys::cudnnSetFilter4dDescriptor(raw, FLOAT, LAYOUT, k, c, r, s));
            or_destroy(raw, check("cudnnSetFilter4dDescriptor", status))
        }
    }

    unsafe fn destroy(self) {
        // SAFETY: the caller's promise.
        let _ = unsafe { status_call!(sys::cudnnDestroyFilterDescriptor(self)) };
    }
}

impl Opaque for sys::cudnnConvolutionDescriptor_t {
    type Fields = ConvolutionFields;

    fn create(fields: &ConvolutionFields) -> Result<Self, CudnnError> {
        let &ConvolutionFields { pad, stride, dilation, groups, math } = fields;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the address of a descriptor is written to; the descriptor is then set.
        unsafe {
            check(
                "cudnnCreateConvolutionDescriptor",
                status_call!(sys::cudnnCreateConvolutionDescriptor(&mut raw)),
            )?;
            let status = status_call!(sys::cudnnSetConvolution2dDescriptor(
                raw,
                pad[0],
                pad[1],
                stride[0],
                stride[1],
                dilation[0],
                dilation[1],
                MODE,
                FLOAT,
            ));
            let set = check("cudnnSetConvolution2dDescriptor", status)
                .and_then(|()| {
                    let status = status_call!(sys::cudnnSetConvolutionGroupCount(raw, groups));
                    check("cudnnSetConvolutionGroupCount", status)
                })
                .and_then(|()| {
                    check(
                        "cudnnSetConvolutionMathType",
                        status_call!(sys::cudnnSetConvolutionMathType(raw, math)),
                    )
                });
            or_destroy(raw, set)
        }
    }

    unsafe fn destroy(self) {
        // SAFETY: the caller's promise.
        let _ = unsafe { status_call!(sys::cudnnDestroyConvolutionDescriptor(self)) };
    }
}

const LAYOUT: sys::cudnnTensorFormat_t = sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW;
const FLOAT: sys::cudnnDataType_t = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
/// Cross-correlation: what deep learning calls a convolution.
const MODE: sys::cudnnConvolutionMode_t = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;

/// `raw` if it could be set, and its end if not.
///
/// # Safety
/// As [`Opaque::destroy`], should `set` be an error.
unsafe fn or_destroy<T: Opaque>(raw: T, set: Result<(), CudnnError>) -> Result<T, CudnnError> {
    if set.is_err() {
        // SAFETY: the caller's promise.
        unsafe { raw.destroy() };
    }
    set.map(|()| raw)
}
