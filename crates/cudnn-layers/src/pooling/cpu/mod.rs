//! Pooling on the CPU, plane by plane.

mod average;
mod maximum;

pub(super) use average::{backward_average, forward_average};
pub(super) use maximum::{backward_max, forward_max};

use crate::cpu_loops::{for_each_run, inlined, items_per_task};
use std::ops::Range;
use tensor::{Accumulate, Cpu, Out, PoolGeometry};

/// Elements of a plane of the image, and of one of outputs.
fn plane_lens(g: &PoolGeometry) -> [usize; 2] {
    [g.h * g.w, g.out_h() * g.out_w()]
}

/// Calls `body(plane, its elements)` for every plane of `out`, which have `len` elements each, vectorised.
fn for_each_plane(
    cpu: &Cpu,
    g: &PoolGeometry,
    (out, len): (&mut [f32], usize),
    body: impl Fn(usize, &mut [f32]) + Sync,
) {
    inlined!(for_each_run(cpu, g.n * g.c, items_per_task(g.h * g.w), [out]), |planes, [out]| planes
        .zip(out.chunks_exact_mut(len))
        .for_each(|(plane, out)| body(plane, out)));
}

/// The same for gradients of images, to which `body` adds.
fn add_to_planes(cpu: &Cpu, g: &PoolGeometry, dx: Out<'_>, body: impl Fn(usize, &mut [f32]) + Sync) {
    let (dx, accumulate) = dx.into_host();
    inlined!(for_each_plane(cpu, g, (dx, g.h * g.w)), |plane, dx| {
        if accumulate == Accumulate::Replace {
            dx.fill(0.0);
        }
        body(plane, dx);
    });
}

/// Pixels of the image under the window of output `index` along one axis.
#[inline(always)]
fn pixels(g: &PoolGeometry, axis: usize, index: usize) -> Range<usize> {
    let start = index * g.stride[axis];
    let end = (start + g.window[axis]).saturating_sub(g.pad[axis]).min([g.h, g.w][axis]);
    start.saturating_sub(g.pad[axis]).min(end)..end
}
