//! cuDNN's descriptors: made, set and destroyed as Rust values are.

use super::{CudnnError, api::call};
use crate::conv::operands;
use cudarc::cudnn::sys;
use planner::Math;
use std::ffi::c_int;
use tensor::{AxisOrder, ConvGeometry, ElementType, Format};

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
                // SAFETY: made in `new`; `raw` is used only while `self` lives, and that ends here. Should this fail, there
                // is nothing left to be done.
                let _ = unsafe { call!($destroy(self.0)) };
            }
        }

        // SAFETY: a descriptor is set once, in `new`, and only read from then on; it belongs to no thread and no handle.
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
    pub(crate) format: Format,
    pub(crate) x: TensorDescriptor,
    pub(crate) w: FilterDescriptor,
    pub(crate) y: TensorDescriptor,
    pub(crate) convolution: ConvolutionDescriptor,
}

impl ConvDescriptors {
    /// Descriptors of `g` with operands of `format`, the filter included, for arithmetic in `math`.
    pub(crate) fn new(g: &ConvGeometry, format: Format, math: Math) -> Result<Self, CudnnError> {
        Ok(Self {
            geometry: *g,
            format,
            x: tensor(format, [g.n, g.c, g.h, g.w])?,
            w: filter(format, operands::filter(g))?,
            y: tensor(format, [g.n, g.k, g.out_h(), g.out_w()])?,
            convolution: convolution(g, format, math)?,
        })
    }
}

fn tensor(format: Format, dims: [usize; 4]) -> Result<TensorDescriptor, CudnnError> {
    let (dtype, layout, [n, c, h, w]) = (dtype(format), layout(format), extents(dims)?);
    // SAFETY: the descriptor was just made.
    TensorDescriptor::new(|raw| unsafe { call!(cudnnSetTensor4dDescriptor(raw, layout, dtype, n, c, h, w)) })
}

fn filter(format: Format, dims: [usize; 4]) -> Result<FilterDescriptor, CudnnError> {
    let (dtype, layout, [k, c, r, s]) = (dtype(format), layout(format), extents(dims)?);
    // SAFETY: the descriptor was just made.
    FilterDescriptor::new(|raw| unsafe { call!(cudnnSetFilter4dDescriptor(raw, dtype, layout, k, c, r, s)) })
}

/// Cross-correlation: what deep learning calls a convolution.
pub(super) const MODE: sys::cudnnConvolutionMode_t = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
pub(super) const SUMS: sys::cudnnDataType_t = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;

fn convolution(g: &ConvGeometry, format: Format, math: Math) -> Result<ConvolutionDescriptor, CudnnError> {
    let ([pad, stride, dilation], [groups]) =
        ([extents(g.pad)?, extents(g.stride)?, extents(g.dilation)?], extents([g.groups])?);
    let math = match math {
        _ if format.dtype == ElementType::Bf16 => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
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
                SUMS,
            ))?;
            call!(cudnnSetConvolutionGroupCount(raw, groups))?;
            call!(cudnnSetConvolutionMathType(raw, math))
        }
    })
}

pub(super) fn dtype(format: Format) -> sys::cudnnDataType_t {
    match format.dtype {
        ElementType::F32 => sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
        ElementType::Bf16 => sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        ElementType::U8 => panic!("no convolution computes with bytes"),
    }
}

fn layout(format: Format) -> sys::cudnnTensorFormat_t {
    match format.layout {
        AxisOrder::Nchw => sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
        AxisOrder::Nhwc => sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
    }
}

fn extents<const N: usize>(values: [usize; N]) -> Result<[c_int; N], CudnnError> {
    let mut extents = [0; N];
    for (extent, value) in extents.iter_mut().zip(values) {
        *extent = c_int::try_from(value).map_err(|_| CudnnError::Extent { value })?;
    }
    Ok(extents)
}
