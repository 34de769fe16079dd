//! Between the planner's kernels and this crate's geometries.

use super::ConvOp;
use planner::{ConvShape, Dtype, KernelId, Layout, Math};
use tensor::{AxisOrder, ConvGeometry, ElementType, Format};

/// The convolution of `micro_batch` samples of a planner's shape.
pub fn geometry(shape: &ConvShape, micro_batch: u32) -> ConvGeometry {
    let &ConvShape { c, h, w, k, r, s, pad, stride, dilation, groups, pack } = shape;
    let extents = [micro_batch, c, h, w, k, r, s, groups, pack];
    let [n, c, h, w, k, r, s, groups, pack] = extents.map(|extent| extent as usize);
    let [pad, stride, dilation] = [pad, stride, dilation].map(|pair| pair.map(|extent| extent as usize));
    ConvGeometry { n, c, h, w, k, r, s, pad, stride, dilation, groups, pack }
}

/// What identifies the kernel of `op` on this geometry, with feature maps of this format, whatever its mini-batch.
///
/// # Panics
/// If an extent exceeds 32 bits, or feature maps are bytes.
pub fn kernel_id(op: ConvOp, g: &ConvGeometry, format: Format) -> KernelId {
    let extent = |value: usize| u32::try_from(value).expect("extents of images and filters fit in 32 bits");
    let [c, h, w, k, r, s, groups, pack] = [g.c, g.h, g.w, g.k, g.r, g.s, g.groups, g.pack].map(extent);
    let [pad, stride, dilation] = [g.pad, g.stride, g.dilation].map(|pair| pair.map(extent));
    let shape = ConvShape { c, h, w, k, r, s, pad, stride, dilation, groups, pack };
    let dtype = match format.dtype {
        ElementType::F32 => Dtype::F32,
        ElementType::Bf16 => Dtype::Bf16,
        ElementType::U8 => panic!("no convolution computes with bytes"),
    };
    let layout = match format.layout {
        AxisOrder::Nchw => Layout::Nchw,
        AxisOrder::Nhwc => Layout::Nhwc,
    };
    KernelId { op, shape, dtype, math: Math::Fp32, layout }
}

/// The format of the feature maps of a kernel.
pub fn format(kernel: &KernelId) -> Format {
    let dtype = match kernel.dtype {
        Dtype::F32 => ElementType::F32,
        Dtype::Bf16 => ElementType::Bf16,
    };
    let layout = match kernel.layout {
        Layout::Nchw => AxisOrder::Nchw,
        Layout::Nhwc => AxisOrder::Nhwc,
    };
    Format { dtype, layout }
}
