//! Normalisation within a channel on the CPU: sums over a square as a vertical and then a horizontal sum.

use super::{
    Lrn,
    across::{combine, ratios},
    power::{InversePower, with_power},
};
use crate::cpu_loops::{for_each_run, items_per_task};
use std::ops::Range;
use tensor::{Accumulate, Cpu};

/// Columns of a block, and its margins.
const ROOM: usize = 1024;

/// Calls `body(range of a row of the plane, the sums over the squares around its pixels)` for blocks of all rows.
/// `terms(range, to)` computes what is summed, for a range within a row.
#[inline(always)]
fn for_each_square_sum(
    size: usize,
    [h, w]: [usize; 2],
    terms: impl Fn(Range<usize>, &mut [f32]),
    mut body: impl FnMut(Range<usize>, &[f32]),
) {
    let half = size / 2;
    let (mut vertical, mut row_terms, mut sums) = ([0.0; ROOM], [0.0; ROOM], [0.0; ROOM]);
    for row in 0..h {
        for first in (0..w).step_by(ROOM - size) {
            let columns = first..(first + ROOM - size).min(w);
            // Position p of `vertical` is the column first + p - half; positions outside the image stay zero.
            vertical.fill(0.0);
            let inside = first.saturating_sub(half)..(columns.end + half).min(w);
            let at = inside.start + half - first;
            for neighbour in row.saturating_sub(half)..(row + half + 1).min(h) {
                let row_terms = &mut row_terms[..inside.len()];
                terms(neighbour * w + inside.start..neighbour * w + inside.end, row_terms);
                vertical[at..].iter_mut().zip(row_terms).for_each(|(sum, term)| *sum += *term);
            }
            let sums = &mut sums[..columns.len()];
            sums.fill(0.0);
            for shift in 0..size {
                sums.iter_mut().zip(&vertical[shift..]).for_each(|(sum, part)| *sum += part);
            }
            body(row * w + columns.start..row * w + columns.end, sums);
        }
    }
}

pub(super) fn forward(cpu: &Cpu, lrn: &Lrn, shape: [usize; 4], x: &[f32], out: [&mut [f32]; 2]) {
    with_power!(lrn, forward_with(cpu, lrn, shape, x, out))
}

fn forward_with(
    cpu: &Cpu,
    lrn: &Lrn,
    [n, c, h, w]: [usize; 4],
    x: &[f32],
    out: [&mut [f32]; 2],
    power: impl InversePower,
) {
    let (pixels, factor) = (h * w, lrn.alpha / (lrn.size * lrn.size) as f32);
    for_each_run(
        cpu,
        n * c,
        items_per_task(pixels),
        out,
        #[inline(always)]
        |planes, [y, scale]| {
            let x = &x[planes.start * pixels..planes.end * pixels];
            let planes =
                x.chunks_exact(pixels).zip(y.chunks_exact_mut(pixels)).zip(scale.chunks_exact_mut(pixels));
            for ((x, y), scale) in planes {
                let squares = |range: Range<usize>, to: &mut [f32]| {
                    to.iter_mut().zip(&x[range]).for_each(|(to, &x)| *to = x * x);
                };
                for_each_square_sum(lrn.size, [h, w], squares, |range, sums| {
                    let out = y[range.clone()].iter_mut().zip(&mut scale[range.clone()]);
                    for (((y, scale), &x), &sum) in out.zip(&x[range]).zip(sums) {
                        *scale = 1.0 + factor * sum;
                        *y = x * power.of(*scale);
                    }
                });
            }
        },
    );
}

pub(super) fn backward(
    cpu: &Cpu,
    lrn: &Lrn,
    shape: [usize; 4],
    inputs: [&[f32]; 3],
    dx: &mut [f32],
    accumulate: Accumulate,
) {
    with_power!(lrn, backward_with(cpu, lrn, shape, inputs, dx, accumulate))
}

fn backward_with(
    cpu: &Cpu,
    lrn: &Lrn,
    [n, c, h, w]: [usize; 4],
    inputs: [&[f32]; 3],
    dx: &mut [f32],
    accumulate: Accumulate,
    power: impl InversePower,
) {
    let pixels = h * w;
    let factor = 2.0 * lrn.alpha * lrn.beta / (lrn.size * lrn.size) as f32;
    for_each_run(
        cpu,
        n * c,
        items_per_task(pixels),
        [dx],
        #[inline(always)]
        |planes, [dx]| {
            for (plane, dx) in planes.zip(dx.chunks_exact_mut(pixels)) {
                let inputs = inputs.map(|input| &input[plane * pixels..(plane + 1) * pixels]);
                let part = |range: Range<usize>| inputs.map(|input| &input[range.clone()]);
                let terms = |range: Range<usize>, to: &mut [f32]| ratios(part(range), to, power);
                for_each_square_sum(lrn.size, [h, w], terms, |range, sums| {
                    combine(part(range.clone()), sums, factor, &mut dx[range], accumulate, power);
                });
            }
        },
    );
}
