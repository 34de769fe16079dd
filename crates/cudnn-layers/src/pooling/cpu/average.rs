//! Average pooling on the CPU.

use super::{for_each_plane, pixels, plane_lens};
use crate::cpu_sums::{Itself, sums};
use tensor::{Accumulate, Cpu, PoolGeometry};

pub(crate) fn forward(cpu: &Cpu, g: &PoolGeometry, x: &[f32], y: &mut [f32]) {
    let [image, outputs] = plane_lens(g);
    for_each_plane(
        cpu,
        g,
        (y, outputs),
        #[inline(always)]
        |plane, y| {
            let x = &x[plane * image..(plane + 1) * image];
            match is_global(g) {
                true => y[0] = sums([x], Itself)[0] as f32 / image as f32,
                false => forward_plane(g, x, y),
            }
        },
    );
}

/// Whether the window is the whole image.
fn is_global(g: &PoolGeometry) -> bool {
    g.window == [g.h, g.w] && g.pad == [0, 0] && g.out_h() * g.out_w() == 1
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

pub(crate) fn backward(cpu: &Cpu, g: &PoolGeometry, dy: &[f32], dx: &mut [f32], accumulate: Accumulate) {
    let [image, outputs] = plane_lens(g);
    for_each_plane(
        cpu,
        g,
        (dx, image),
        #[inline(always)]
        |plane, dx| {
            if accumulate == Accumulate::Replace {
                dx.fill(0.0);
            }
            backward_plane(g, &dy[plane * outputs..(plane + 1) * outputs], dx);
        },
    );
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
