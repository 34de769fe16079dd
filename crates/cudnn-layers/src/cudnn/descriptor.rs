//! cuDNN's descriptors: made, set and destroyed as Rust values are.

use super::{CudnnError, api::call};
use crate::conv::operands;
use cudarc::cudnn::sys;
use planner::Math;
use std::ffi::c_int;
use tensor::ConvGeometry;

/// One of cuDNN's opaque objects, which dies with the value.
macro_rules! descriptors {
    ($($name:ident($raw:ident): $create:ident, $destroy:ident;)*) => {$(
        #[derive(Debug)]
        pub(crate) struct $name(sys::$raw);

        impl $name {
            /// A new one, as `set` sets it.
            fn new(set: impl FnOnce(sys::$raw) -> Result<(), CudnnError>) -> Result<Self, CudnnError> {
                let mut raw = std::ptr::null_mut();
                // SAFETY: the address of a descriptor is written to.
                unsafe { call!($create(&mut raw)) }?;
                let descriptor = Self(raw);
                set(raw).map(|()| descriptor)
            }

            /// For calls of cuDNN during the life of `self`.
            pub(crate) fn raw(&self) -> sys::$raw {
                self.0
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: made in `new`; `raw` is used only while `self` lives, and that ends here. Should this fail,
                // there is nothing left to be done.
                let _ = unsafe { call!($destroy(self.0)) };
            }
        }

        // SAFETY: a descriptor is set once, in `new`, and only read from then on; it belongs to no thread and no
        // handle.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    )*};
}

descriptors! {
    TensorDescriptor(cudnnTensorDescriptor_t): cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor;
    FilterDescriptor(cudnnFilterDescriptor_t): cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor;
    ConvolutionDescriptor(cudnnConvolutionDescriptor_t):
        cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor;
}

/// The descriptors of one convolution: `dx` is as `x`, `dw` as `w` and `dy` as `y`.
#[derive(Debug)]
pub(crate) struct ConvDescriptors {
    pub(crate) geometry: ConvGeometry,
    pub(crate) x: TensorDescriptor,
    pub(crate) w: FilterDescriptor,
    pub(crate) y: TensorDescriptor,
    pub(crate) convolution: ConvolutionDescriptor,
}

impl ConvDescriptors {
    /// Descriptors of `g` with operands in single precision and NCHW, for arithmetic in `math`.
    pub(crate) fn new(g: &ConvGeometry, math: Math) -> Result<Self, CudnnError> {
        Ok(Self {
            geometry: *g,
            x: tensor([g.n, g.c, g.h, g.w])?,
            w: filter(operands::filter(g))?,
            y: tensor([g.n, g.k, g.out_h(), g.out_w()])?,
            convolution: convolution(g, math)?,
        })
    }
}

fn tensor(dims: [usize; 4]) -> Result<TensorDescriptor, CudnnError> {
    let [n, c, h, w] = extents(dims)?;
    // SAFETY: the descriptor was just made.
    TensorDescriptor::new(|raw| unsafe { call!(cudnnSetTensor4dDescriptor(raw, NCHW, FLOAT, n, c, h, w)) })
}

fn filter(dims: [usize; 4]) -> Result<FilterDescriptor, CudnnError> {
    let [k, c, r, s] = extents(dims)?;
    // SAFETY: the descriptor was just made.
    FilterDescriptor::new(|raw| unsafe { call!(cudnnSetFilter4dDescriptor(raw, FLOAT, NCHW, k, c, r, s)) })
}

/// Cross-correlation: what deep learning calls a convolution.
pub(super) const MODE: sys::cudnnConvolutionMode_t = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
pub(super) const FLOAT: sys::cudnnDataType_t = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
const NCHW: sys::cudnnTensorFormat_t = sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW;

fn convolution(g: &ConvGeometry, math: Math) -> Result<ConvolutionDescriptor, CudnnError> {
    let ([pad, stride, dilation], [groups]) =
        ([extents(g.pad)?, extents(g.stride)?, extents(g.dilation)?], extents([g.groups])?);
    let math = match math {
        Math::Fp32 => sys::cudnnMathType_t::CUDNN_FMA_MATH,
        Math::Tf32 => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
    };
    ConvolutionDescriptor::new(|raw| {
        // SAFETY: the descriptor was just made, as for both calls below.
        unsafe {
            call!(cudnnSetConvolution2dDescriptor(
                raw,
                pad[0],
                pad[1],
                stride[0],
                stride[1],
                dilation[0],
                dilation[1],
                MODE,
                FLOAT,
            ))?;
            call!(cudnnSetConvolutionGroupCount(raw, groups))?;
            call!(cudnnSetConvolutionMathType(raw, math))
        }
    })
}

fn extents<const N: usize>(values: [usize; N]) -> Result<[c_int; N], CudnnError> {
    let mut extents = [0; N];
    for (extent, value) in extents.iter_mut().zip(values) {
        *extent = c_int::try_from(value).map_err(|_| CudnnError::Extent { value })?;
    }
    Ok(extents)
}
