//! Average pooling on the CPU.

use super::rows::{Band, OUTPUTS, Walk, pixels};
use crate::{
    cpu_loops::{for_each_run, items_per_task},
    cpu_sums::{Itself, sums},
};
use tensor::{Accumulate, Cpu, PoolGeometry};

pub(super) fn forward(cpu: &Cpu, g: &PoolGeometry, x: &[f32], y: &mut [f32]) {
    for_each_run(
        cpu,
        g.n * g.c,
        items_per_task(g.h * g.w),
        [y],
        #[inline(always)]
        |planes, [y]| {
            let x = x[planes.start * g.h * g.w..].chunks_exact(g.h * g.w);
            forward_planes(g, x.zip(y.chunks_exact_mut(g.out_h() * g.out_w())));
        },
    );
}

/// Pixels of the window of output `index` along one axis, padding included: what the sum is divided by.
#[inline(always)]
fn extent(g: &PoolGeometry, axis: usize, image: usize, index: usize) -> usize {
    let start = index * g.stride[axis];
    (start + g.window[axis]).min(image + 2 * g.pad[axis]) - start
}

/// Whether the window is the whole image.
fn is_global(g: &PoolGeometry) -> bool {
    g.window == [g.h, g.w] && g.pad == [0, 0] && g.out_h() * g.out_w() == 1
}

/// Planes that follow each other.
#[inline(always)]
fn forward_planes<'a>(g: &PoolGeometry, planes: impl Iterator<Item = (&'a [f32], &'a mut [f32])>) {
    if is_global(g) {
        return planes.for_each(|(x, y)| y[0] = sums([x], Itself)[0] as f32 / x.len() as f32);
    }
    let Some(mut walk) = Walk::new(g, 0.0) else {
        return planes.for_each(|(x, y)| forward_directly(g, x, y));
    };
    let (mut totals, widths) = ([0.0; OUTPUTS], widths(g));
    for (x, y) in planes {
        for band in walk.bands() {
            let totals = &mut totals[..walk.len(&band)];
            totals.fill(0.0);
            walk.for_each_tap(
                x,
                &band,
                #[inline(always)]
                |_, pixels| totals.iter_mut().zip(pixels).for_each(|(total, &pixel)| *total += pixel),
            );
            for (row, totals) in band.rows.zip(totals.chunks_exact(walk.pitch)) {
                let height = extent(g, 0, g.h, row) as f32;
                let y = y[row * g.out_w()..(row + 1) * g.out_w()].iter_mut();
                y.zip(totals).zip(&widths).for_each(|((y, &total), &width)| *y = total / (height * width));
            }
        }
    }
}

/// The windows' widths, padding included, of the outputs of a row that fits a band.
fn widths(g: &PoolGeometry) -> [f32; OUTPUTS] {
    let mut widths = [0.0; OUTPUTS];
    (0..g.out_w()).zip(&mut widths).for_each(|(column, width)| *width = extent(g, 1, g.w, column) as f32);
    widths
}

/// For windows or strides too wide for [`rows`].
#[inline(always)]
fn forward_directly(g: &PoolGeometry, x: &[f32], y: &mut [f32]) {
    let out_w = g.out_w();
    for (index, y) in y.iter_mut().enumerate() {
        let (row, column) = (index / out_w, index % out_w);
        let mut total = 0.0;
        for image_row in pixels(g, 0, g.h, row) {
            let columns = pixels(g, 1, g.w, column);
            let [sum] = sums([&x[image_row * g.w..][columns]], Itself);
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
            if accumulate == Accumulate::Replace {
                dx.fill(0.0);
            }
            let dy = dy[planes.start * out_h * out_w..].chunks_exact(out_h * out_w);
            backward_planes(g, dy.zip(dx.chunks_exact_mut(g.h * g.w)));
        },
    );
}

/// Adds every `dy`, divided by its window's number of pixels, to the pixels under its window.
#[inline(always)]
fn backward_planes<'a>(g: &PoolGeometry, planes: impl Iterator<Item = (&'a [f32], &'a mut [f32])>) {
    if is_global(g) {
        return planes.for_each(|(dy, dx)| {
            let share = dy[0] / dx.len() as f32;
            dx.iter_mut().for_each(|dx| *dx += share);
        });
    }
    let Some(mut walk) = Walk::new(g, 0.0) else {
        return planes.for_each(|(dy, dx)| backward_directly(g, dy, dx));
    };
    let (mut shares, widths) = ([0.0; OUTPUTS], widths(g));
    for (dy, dx) in planes {
        for band in walk.bands() {
            set_shares(g, dy, &band, walk.pitch, &widths, &mut shares);
            walk.spread(&shares[..walk.len(&band)], &band, dx);
        }
    }
}

/// Every `dy` of a band divided by its window's number of pixels. The padding of rows is never written and stays zero.
#[inline(always)]
fn set_shares(g: &PoolGeometry, dy: &[f32], band: &Band, pitch: usize, widths: &[f32], shares: &mut [f32]) {
    for (row, shares) in band.rows.clone().zip(shares.chunks_exact_mut(pitch)) {
        let height = extent(g, 0, g.h, row) as f32;
        let dy = &dy[row * g.out_w()..(row + 1) * g.out_w()];
        let shares = shares.iter_mut().zip(dy).zip(widths);
        shares.for_each(|((share, &dy), &width)| *share = dy / (height * width));
    }
}

/// For windows or strides too wide for [`rows`].
#[inline(always)]
fn backward_directly(g: &PoolGeometry, dy: &[f32], dx: &mut [f32]) {
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
