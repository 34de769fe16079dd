//! Average pooling on the CPU.

use super::{add_to_planes, for_each_plane, pixels, plane_lens};
use crate::cpu_loops::inlined;
use tensor::{Cpu, Out, PoolGeometry, View, ViewMut};

pub(crate) fn forward_average(cpu: &Cpu, g: &PoolGeometry, x: View<'_>, y: ViewMut<'_>) {
    let ([image, outputs], x) = (plane_lens(g), x.host());
    inlined!(for_each_plane(cpu, g, (y.into_host(), outputs)), |plane, y| {
        let x = &x[plane * image..(plane + 1) * image];
        forward_plane(g, x, y);
    });
}

/// What the sum under window `(row, column)` is divided by: its pixels, padding included.
#[inline(always)]
fn size(g: &PoolGeometry, row: usize, column: usize) -> f32 {
    let extent = |axis: usize, image: usize, index: usize| {
        let start = index * g.stride[axis];
        (start + g.window[axis]).min(image + 2 * g.pad[axis]) - start
    };
    (extent(0, g.h, row) * extent(1, g.w, column)) as f32
}

#[inline(always)]
fn forward_plane(g: &PoolGeometry, x: &[f32], y: &mut [f32]) {
    for (row, y) in y.chunks_exact_mut(g.out_w()).enumerate() {
        for (column, y) in y.iter_mut().enumerate() {
            let (mut total, columns) = (0.0, pixels(g, 1, column));
            for image_row in pixels(g, 0, row) {
                let pixels = &x[image_row * g.w..][columns.clone()];
                total += pixels.iter().map(|&pixel| f64::from(pixel)).sum::<f64>();
            }
            *y = total as f32 / size(g, row, column);
        }
    }
}

pub(crate) fn backward_average(cpu: &Cpu, g: &PoolGeometry, dy: View<'_>, dx: Out<'_>) {
    let ([_, outputs], dy) = (plane_lens(g), dy.host());
    inlined!(add_to_planes(cpu, g, dx), |plane, dx| backward_plane(
        g,
        &dy[plane * outputs..(plane + 1) * outputs],
        dx
    ));
}

/// Adds every `dy`, divided by its window's number of pixels, to the pixels under its window.
#[inline(always)]
fn backward_plane(g: &PoolGeometry, dy: &[f32], dx: &mut [f32]) {
    for (row, dy) in dy.chunks_exact(g.out_w()).enumerate() {
        for (column, &dy) in dy.iter().enumerate() {
            let (share, columns) = (dy / size(g, row, column), pixels(g, 1, column));
            for image_row in pixels(g, 0, row) {
                let pixels = &mut dx[image_row * g.w..][columns.clone()];
                pixels.iter_mut().for_each(|dx| *dx += share);
            }
        }
    }
}
