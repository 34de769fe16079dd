//! Walking over the windows of one row of outputs on the CPU, many outputs at a time.
//!
//! With a stride of 2, neighbouring outputs read every second pixel. So each row of pixels is first dealt out into as many
//! runs as the stride (even pixels, odd pixels); then a tap of all windows is a contiguous run, and padding is a
//! matter of what the runs are filled with.

use std::ops::Range;
use tensor::PoolGeometry;

/// Outputs handled at a time; blocks are padded to a multiple of the vector length.
pub(super) const BLOCK: usize = 64;
const VECTOR: usize = 16;
/// Room for one row of pixels under a block of outputs.
const ROOM: usize = 2048;

/// A block of outputs of one row: `columns` of them from `first` on, computed as `width`.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) row: usize,
    pub(super) first: usize,
    pub(super) columns: usize,
    pub(super) width: usize,
}

impl Block {
    /// Its outputs within the plane.
    pub(super) fn outputs(&self, out_w: usize) -> Range<usize> {
        let start = self.row * out_w + self.first;
        start..start + self.columns
    }
}

/// Whether windows are small enough for [`for_each_tap`].
pub(super) fn fits(g: &PoolGeometry) -> bool {
    pitch(g, BLOCK) * g.stride[1] <= ROOM
}

/// Elements of a run.
#[inline(always)]
fn pitch(g: &PoolGeometry, width: usize) -> usize {
    width + (g.window[1] - 1) / g.stride[1]
}

/// Calls `body` for every block of outputs of one plane.
#[inline(always)]
pub(super) fn for_each_block(g: &PoolGeometry, mut body: impl FnMut(Block)) {
    let (out_h, out_w) = (g.out_h(), g.out_w());
    for row in 0..out_h {
        for first in (0..out_w).step_by(BLOCK) {
            let columns = (out_w - first).min(BLOCK);
            body(Block { row, first, columns, width: columns.next_multiple_of(VECTOR) });
        }
    }
}

/// Rows of the image under the window of output row `row`, as `(row of the window, row of the image)`.
#[inline(always)]
pub(super) fn image_rows(g: &PoolGeometry, row: usize) -> impl Iterator<Item = (usize, usize)> {
    let (start, pad, h) = (row * g.stride[0], g.pad[0], g.h);
    (0..g.window[0]).filter(move |r| (pad..h + pad).contains(&(start + r))).map(move |r| (r, start + r - pad))
}

/// Calls `body(tap, the tap's pixel under each of the block's outputs)` for all taps inside the image's rows, in row-major
/// order. Columns outside the image read as `padding`.
#[inline(always)]
pub(super) fn for_each_tap(
    g: &PoolGeometry,
    plane: &[f32],
    block: Block,
    padding: f32,
    mut body: impl FnMut(usize, &[f32]),
) {
    let mut runs = [padding; ROOM];
    let (stride, pitch) = (g.stride[1], pitch(g, block.width));
    for (r, image_row) in image_rows(g, block.row) {
        deal(g, &plane[image_row * g.w..(image_row + 1) * g.w], block, padding, &mut runs);
        for s in 0..g.window[1] {
            let start = s % stride * pitch + s / stride;
            body(r * g.window[1] + s, &runs[start..start + block.width]);
        }
    }
}

/// Deals the pixels under a block out into `stride` runs, `pitch` apart: position `i * stride + f` goes to place `i` of run `f`.
#[inline(always)]
fn deal(g: &PoolGeometry, row: &[f32], block: Block, padding: f32, runs: &mut [f32; ROOM]) {
    let (stride, pitch) = (g.stride[1], pitch(g, block.width));
    for (f, run) in runs.chunks_exact_mut(pitch).take(stride).enumerate() {
        let (places, column) = inside(g, block, f);
        run[..places.start].fill(padding);
        run[places.end..].fill(padding);
        if !places.is_empty() {
            every(stride, &row[column..], &mut run[places]);
        }
    }
}

/// The places of run `f` that lie inside the image, and the image's column of the first of them. Position `p` of a block
/// is the column `p + first * stride - pad`.
#[inline(always)]
fn inside(g: &PoolGeometry, block: Block, f: usize) -> (Range<usize>, usize) {
    let (stride, pitch) = (g.stride[1], pitch(g, block.width));
    let (origin, pad) = (block.first * stride, g.pad[1]);
    let place = |position: usize| position.saturating_sub(origin + f).div_ceil(stride).min(pitch);
    let from = place(pad);
    (from..place(g.w + pad).max(from), (from * stride + f + origin).saturating_sub(pad))
}

/// The reverse of [`for_each_tap`] for sums: adds `shares`, one per output of the block, to all pixels under its window.
/// Shares past the block's columns are zero.
#[inline(always)]
pub(super) fn spread(g: &PoolGeometry, shares: &[f32; BLOCK], block: Block, plane: &mut [f32]) {
    let (stride, pitch) = (g.stride[1], pitch(g, block.width));
    let mut runs = [0.0; ROOM];
    for s in 0..g.window[1] {
        let start = s % stride * pitch + s / stride;
        let run = &mut runs[start..start + block.width];
        run.iter_mut().zip(shares).for_each(|(sum, &share)| *sum += share);
    }
    for (_, image_row) in image_rows(g, block.row) {
        let row = &mut plane[image_row * g.w..(image_row + 1) * g.w];
        for (f, run) in runs.chunks_exact(pitch).take(stride).enumerate() {
            let (places, column) = inside(g, block, f);
            if !places.is_empty() {
                row[column..].iter_mut().step_by(stride).zip(&run[places]).for_each(|(to, &sum)| *to += sum);
            }
        }
    }
}

/// `to[i] = from[i * stride]`.
#[inline(always)]
fn every(stride: usize, from: &[f32], to: &mut [f32]) {
    match stride {
        1 => to.copy_from_slice(&from[..to.len()]),
        2 => {
            // The last one may have no neighbour.
            let last = to.len() - 1;
            to[last] = from[2 * last];
            to[..last].iter_mut().zip(from.chunks_exact(2)).for_each(|(to, pair)| *to = pair[0]);
        }
        _ => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, &from)| *to = from),
    }
}
