//! cuDNN's descriptors: made, set and destroyed as Rust values are.

use crate::raw::{ConvolutionFields, CudnnError, Opaque};
use cudarc::cudnn::sys;
use planner::Math;
use std::ffi::c_int;
use tensor::ConvGeometry;

/// One of cuDNN's opaque objects, which dies with this value.
#[derive(Debug)]
pub(crate) struct Descriptor<T: Opaque>(T);

impl<T: Opaque> Descriptor<T> {
    fn new(fields: &T::Fields) -> Result<Self, CudnnError> {
        T::create(fields).map(Self)
    }

    /// For calls of cuDNN during the life of `self`.
    pub(crate) fn raw(&self) -> T {
        self.0
    }
}

// SAFETY: a descriptor is set once, in `new`, and only read from then on; it belongs to no thread and no handle.
unsafe impl<T: Opaque> Send for Descriptor<T> {}
// SAFETY: as above.
unsafe impl<T: Opaque> Sync for Descriptor<T> {}

impl<T: Opaque> Drop for Descriptor<T> {
    fn drop(&mut self) {
        // SAFETY: made in `new`; `raw` is used only while `self` lives, and that ends here.
        unsafe { self.0.destroy() };
    }
}

/// The descriptors of one convolution: `dx` is as `x`, `dw` as `w` and `dy` as `y`.
#[derive(Debug)]
pub(crate) struct ConvDescriptors {
    pub(crate) geometry: ConvGeometry,
    pub(crate) x: Descriptor<sys::cudnnTensorDescriptor_t>,
    pub(crate) w: Descriptor<sys::cudnnFilterDescriptor_t>,
    pub(crate) y: Descriptor<sys::cudnnTensorDescriptor_t>,
    pub(crate) convolution: Descriptor<sys::cudnnConvolutionDescriptor_t>,
}

impl ConvDescriptors {
    /// Descriptors of `g` in single precision, NCHW, for arithmetic in `math`.
    pub(crate) fn new(g: &ConvGeometry, math: Math) -> Result<Self, CudnnError> {
        Ok(Self {
            geometry: *g,
            x: Descriptor::new(&extents([g.n, g.c, g.h, g.w])?)?,
            w: Descriptor::new(&extents([g.k, g.c / g.groups, g.r, g.s])?)?,
            y: Descriptor::new(&extents([g.n, g.k, g.out_h(), g.out_w()])?)?,
            convolution: Descriptor::new(&ConvolutionFields {
                pad: extents(g.pad)?,
                stride: extents(g.stride)?,
                dilation: extents(g.dilation)?,
                groups: extents([g.groups])?[0],
                math: match math {
                    Math::Fp32 => sys::cudnnMathType_t::CUDNN_FMA_MATH,
                    Math::Tf32 => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
                },
            })?,
        })
    }
}

fn extents<const N: usize>(values: [usize; N]) -> Result<[c_int; N], CudnnError> {
    let mut extents = [0; N];
    for (extent, value) in extents.iter_mut().zip(values) {
        *extent = c_int::try_from(value).map_err(|_| CudnnError::Extent { value })?;
    }
    Ok(extents)
}
