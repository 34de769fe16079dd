//! Pooling on the CPU, plane by plane.

pub(super) mod average;
pub(super) mod maximum;

use std::ops::Range;
use tensor::PoolGeometry;

/// Elements of a plane of the image, and of one of outputs.
fn plane_lens(g: &PoolGeometry) -> [usize; 2] {
    [g.h * g.w, g.out_h() * g.out_w()]
}

/// Pixels of the image under the window of output `index` along one axis.
#[inline(always)]
fn pixels(g: &PoolGeometry, axis: usize, index: usize) -> Range<usize> {
    let start = index * g.stride[axis];
    let end = (start + g.window[axis]).saturating_sub(g.pad[axis]).min([g.h, g.w][axis]);
    start.saturating_sub(g.pad[axis]).min(end)..end
}
