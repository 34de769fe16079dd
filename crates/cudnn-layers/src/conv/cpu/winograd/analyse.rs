//! From images to the frequencies of their tiles: `B^T x B`.

use super::{
    layout::{Problem, Segment, Spectrum},
    minimal::{A, Input, M, Transform},
    pixels::{gather, pixels_len},
};
use crate::conv::cpu::split;
use std::ops::Range;
use tensor::cpu::{
    SharedMut,
    simd::{LANES, Lanes, WithLanes},
};

/// Transforms rows of tiles of the input, all channels of a group.
///
/// A tile is a window of `A x A` pixels, and windows lie `M` apart. Columns of a row of tiles are
/// transformed first and once, though neighbouring windows share some.
pub(super) struct Analyse<'a> {
    pub(super) problem: &'a Problem,
    pub(super) from: &'a [f32],
    pub(super) group: usize,
    /// Rows of tiles, counted over all images.
    pub(super) rows: Range<usize>,
    /// Rows are tiles from the first on, columns all channels.
    pub(super) layout: Spectrum,
    pub(super) to: SharedMut<'a>,
    pub(super) scratch: &'a mut [f32],
}

/// Scratch of [`Analyse`] for up to `rows` rows of tiles.
pub(super) fn analyse_scratch(problem: &Problem, rows: usize) -> usize {
    let most = (rows.min(problem.rows_per_image()) * M + A).min(problem.input.h);
    pixels_len(most * problem.input.w) + (A * width(problem) + problem.input.w) * LANES
}

/// Columns of pixels that a row of tiles covers.
fn width(problem: &Problem) -> usize {
    (problem.cols() - 1) * M + A
}

impl WithLanes for Analyse<'_> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(mut self, lanes: L) {
        let lens = [A * width(self.problem) * LANES, self.problem.input.w * LANES];
        let ([tall, zeros], scratch) = split(std::mem::take(&mut self.scratch), lens);
        tall.fill(0.0); // The columns of padding stay so.
        zeros.fill(0.0);
        for segment in self.problem.segments(self.rows.clone()) {
            let pixel_rows = self.pixel_rows(&segment);
            for block in 0..self.problem.input.blocks() {
                let planes = self.problem.input.planes(segment.sample, self.group, block, &pixel_rows);
                gather(lanes, self.from, planes, scratch);
                for (index, tile_row) in segment.rows.clone().enumerate() {
                    self.columns(lanes, tile_row, &pixel_rows, scratch, zeros, tall);
                    let tile = (segment.first + index) * self.problem.cols();
                    self.tiles(lanes, tall, block, tile);
                }
            }
        }
    }
}

impl Analyse<'_> {
    /// The rows of pixels that a segment's windows touch.
    fn pixel_rows(&self, segment: &Segment) -> Range<usize> {
        let start = (segment.rows.start * M).saturating_sub(self.problem.pad[0]);
        let end =
            ((segment.rows.end - 1) * M + A).saturating_sub(self.problem.pad[0]).min(self.problem.input.h);
        start.min(end)..end
    }

    /// Transforms every column of pixels of a row of tiles: `tall[frequency][column]`.
    #[inline(always)]
    fn columns<L: Lanes>(
        &self,
        lanes: L,
        tile_row: usize,
        pixel_rows: &Range<usize>,
        pixels: &[f32],
        zeros: &[f32],
        tall: &mut [f32],
    ) {
        let w = self.problem.input.w;
        let mut rows = [zeros; A];
        for (i, row) in rows.iter_mut().enumerate() {
            let y = (tile_row * M + i).wrapping_sub(self.problem.pad[0]);
            if pixel_rows.contains(&y) {
                *row = &pixels[(y - pixel_rows.start) * w * LANES..][..w * LANES];
            }
        }
        let width = width(self.problem);
        let valid = w.min(width - self.problem.pad[1]);
        let tall = &mut tall[self.problem.pad[1] * LANES..];
        assert!(((A - 1) * width + valid) * LANES <= tall.len() && valid * LANES <= zeros.len());
        for column in 0..valid {
            let mut window = [lanes.zero(); A];
            for (element, row) in window.iter_mut().zip(&rows) {
                // SAFETY: every row holds at least `valid` pixels.
                *element = unsafe { lanes.load_ptr(row.as_ptr().add(column * LANES)) };
            }
            for (frequency, &value) in Input::apply(lanes, window).iter().enumerate() {
                // SAFETY: the assert covers the last column of the last frequency.
                unsafe {
                    lanes.store_ptr(tall.as_mut_ptr().add((frequency * width + column) * LANES), value)
                };
            }
        }
    }

    /// Transforms the rows of every window of a row of tiles and stores them as `tile` and its successors.
    #[inline(always)]
    fn tiles<L: Lanes>(&self, lanes: L, tall: &[f32], block: usize, tile: usize) {
        let cols = self.problem.cols();
        let width = width(self.problem);
        let stride = self.layout.width(0);
        assert!(A * width * LANES <= tall.len());
        for vertical in 0..A {
            let row = &tall[vertical * width * LANES..][..width * LANES];
            let mut targets: [&mut [f32]; A] = std::array::from_fn(|_| Default::default());
            for (horizontal, target) in targets.iter_mut().enumerate() {
                let range = self.layout.range(vertical * A + horizontal, 0, tile..tile + cols);
                // SAFETY: frequencies are disjoint, and tasks write different tiles.
                *target = unsafe { &mut self.to.slice(range)[block * LANES..] };
            }
            for col in 0..cols {
                let mut window = [lanes.zero(); A];
                for (i, element) in window.iter_mut().enumerate() {
                    // SAFETY: the last window ends with the row, whose length `width` says.
                    *element = unsafe { lanes.load_ptr(row.as_ptr().add((col * M + i) * LANES)) };
                }
                let transformed = Input::apply(lanes, window);
                for (target, &value) in targets.iter_mut().zip(&transformed) {
                    // SAFETY: a target holds `cols` rows of `stride` columns, less those before its block.
                    unsafe { lanes.store_ptr(target.as_mut_ptr().add(col * stride), value) };
                }
            }
        }
    }
}
