//! Average pooling on the CPU.

use super::rows::{self, BLOCK, Block};
use crate::cpu_loops::{for_each_run, items_per_task, sums};
use std::ops::Range;
use tensor::{Accumulate, Cpu, PoolGeometry};

pub(super) fn forward(cpu: &Cpu, g: &PoolGeometry, x: &[f32], y: &mut [f32]) {
    for_each_run(
        cpu,
        g.n * g.c,
        items_per_task(g.h * g.w),
        [y],
        #[inline(always)]
        |planes, [y]| {
            for (plane, y) in planes.zip(y.chunks_exact_mut(g.out_h() * g.out_w())) {
                forward_plane(g, &x[plane * g.h * g.w..(plane + 1) * g.h * g.w], y);
            }
        },
    );
}

/// Pixels of the window of output `index` along one axis, padding included: what the sum is divided by.
#[inline(always)]
fn extent(g: &PoolGeometry, axis: usize, image: usize, index: usize) -> usize {
    let start = index * g.stride[axis];
    (start + g.window[axis]).min(image + 2 * g.pad[axis]) - start
}

/// Pixels of the image under the window of output `index` along one axis.
#[inline(always)]
fn pixels(g: &PoolGeometry, axis: usize, image: usize, index: usize) -> Range<usize> {
    let start = index * g.stride[axis];
    let end = (start + g.window[axis]).saturating_sub(g.pad[axis]).min(image);
    start.saturating_sub(g.pad[axis]).min(end)..end
}

#[inline(always)]
fn forward_plane(g: &PoolGeometry, x: &[f32], y: &mut [f32]) {
    if let [y] = y
        && g.window == [g.h, g.w]
        && g.pad == [0, 0]
    {
        let [sum] = sums([x], |[x]| [x]);
        *y = sum as f32 / x.len() as f32;
        return;
    }
    let out_w = g.out_w();
    if !rows::fits(g) {
        return forward_plane_directly(g, x, y);
    }
    rows::for_each_block(
        g,
        #[inline(always)]
        |block| forward_block(g, x, block, &mut y[block.outputs(out_w)]),
    );
}

#[inline(always)]
fn forward_block(g: &PoolGeometry, x: &[f32], block: Block, y: &mut [f32]) {
    let mut totals = [0.0; BLOCK];
    rows::for_each_tap(
        g,
        x,
        block,
        0.0,
        #[inline(always)]
        |_, pixels| totals.iter_mut().zip(pixels).for_each(|(total, &pixel)| *total += pixel),
    );
    y.iter_mut().zip(&totals).zip(&sizes(g, block)).for_each(|((y, &total), &size)| *y = total / size);
}

/// What the sums of a block are divided by: the whole window's width nearly everywhere, less for the last columns.
#[inline(always)]
fn sizes(g: &PoolGeometry, block: Block) -> [f32; BLOCK] {
    let height = extent(g, 0, g.h, block.row);
    let mut sizes = [(height * g.window[1]) as f32; BLOCK];
    let last_whole = (g.w + 2 * g.pad[1] - g.window[1]) / g.stride[1];
    for column in (last_whole + 1).max(block.first)..block.first + block.columns {
        sizes[column - block.first] = (height * extent(g, 1, g.w, column)) as f32;
    }
    sizes
}

/// For windows or strides too wide for [`rows`].
#[inline(always)]
fn forward_plane_directly(g: &PoolGeometry, x: &[f32], y: &mut [f32]) {
    let out_w = g.out_w();
    for (index, y) in y.iter_mut().enumerate() {
        let (row, column) = (index / out_w, index % out_w);
        let mut total = 0.0;
        for image_row in pixels(g, 0, g.h, row) {
            let columns = pixels(g, 1, g.w, column);
            let [sum] = sums([&x[image_row * g.w..][columns]], |[x]| [x]);
            total += sum;
        }
        *y = total as f32 / (extent(g, 0, g.h, row) * extent(g, 1, g.w, column)) as f32;
    }
}

pub(super) fn backward(cpu: &Cpu, g: &PoolGeometry, dy: &[f32], dx: &mut [f32], accumulate: Accumulate) {
    let (out_h, out_w) = (g.out_h(), g.out_w());
    for_each_run(
        cpu,
        g.n * g.c,
        items_per_task(g.h * g.w),
        [dx],
        #[inline(always)]
        |planes, [dx]| {
            for (plane, dx) in planes.zip(dx.chunks_exact_mut(g.h * g.w)) {
                if accumulate == Accumulate::Replace {
                    dx.fill(0.0);
                }
                backward_plane(g, &dy[plane * out_h * out_w..(plane + 1) * out_h * out_w], dx);
            }
        },
    );
}

/// Adds every `dy`, divided by its window's number of pixels, to the pixels under its window.
#[inline(always)]
fn backward_plane(g: &PoolGeometry, dy: &[f32], dx: &mut [f32]) {
    if let [dy] = *dy
        && g.window == [g.h, g.w]
        && g.pad == [0, 0]
    {
        let share = dy / dx.len() as f32;
        return dx.iter_mut().for_each(|dx| *dx += share);
    }
    if !rows::fits(g) {
        return backward_plane_directly(g, dy, dx);
    }
    let out_w = g.out_w();
    rows::for_each_block(
        g,
        #[inline(always)]
        |block| {
            let mut shares = [0.0; BLOCK];
            let dy = &dy[block.outputs(out_w)];
            let sizes = sizes(g, block);
            shares.iter_mut().zip(dy).zip(&sizes).for_each(|((share, &dy), &size)| *share = dy / size);
            rows::spread(g, &shares, block, dx);
        },
    );
}

/// For windows or strides too wide for [`rows`].
#[inline(always)]
fn backward_plane_directly(g: &PoolGeometry, dy: &[f32], dx: &mut [f32]) {
    for (row, dy) in dy.chunks_exact(g.out_w()).enumerate() {
        let height = extent(g, 0, g.h, row);
        for image_row in pixels(g, 0, g.h, row) {
            let dx = &mut dx[image_row * g.w..(image_row + 1) * g.w];
            for (column, &dy) in dy.iter().enumerate() {
                let share = dy / (height * extent(g, 1, g.w, column)) as f32;
                dx[pixels(g, 1, g.w, column)].iter_mut().for_each(|dx| *dx += share);
            }
        }
    }
}
