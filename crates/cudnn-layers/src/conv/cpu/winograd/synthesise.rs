//! From products at the points back to images: `A^T M A`.

use super::layout::{Problem, Segment, Spectrum};
use super::minimal::{A, M, Output, square};
use crate::conv::cpu::planes::pixels_len;
use std::ops::Range;
use tensor::Accumulate;
use tensor::cpu::{LANES, Lanes, SharedMut, WithLanes};

/// Transforms one panel of channels of rows of tiles into the output.
pub(super) struct Synthesise<'a> {
    pub(super) problem: &'a Problem,
    pub(super) group: usize,
    /// Rows of tiles, counted over all images.
    pub(super) rows: Range<usize>,
    /// Rows are tiles, columns are channels.
    pub(super) layout: Spectrum,
    pub(super) from: &'a [f32],
    /// The panel of `layout`.
    pub(super) panel: usize,
    /// The row of `layout` that holds the first tile.
    pub(super) first_tile: usize,
    /// The block of output channels that the panel starts with.
    pub(super) first_block: usize,
    pub(super) to: &'a SharedMut<'a>,
    pub(super) accumulate: Accumulate,
    pub(super) scratch: &'a mut [f32],
}

/// Scratch of [`Synthesise`] for up to `rows` rows of tiles.
pub(super) fn synthesise_scratch(problem: &Problem, rows: usize) -> usize {
    let most = (rows.min(problem.rows_per_image()) * M).min(problem.output.h);
    pixels_len(most * problem.output.w)
}

impl WithLanes for Synthesise<'_> {
    #[inline(always)]
    fn call<L: Lanes>(mut self, lanes: L) {
        let pixels = std::mem::take(&mut self.scratch);
        for segment in self.problem.segments(self.group, self.rows.clone()) {
            let start = segment.rows.start * M;
            let pixel_rows = start..(segment.rows.end * M).min(self.problem.output.h);
            for block in 0..self.layout.panel_blocks(self.panel).len() {
                self.tiles(lanes, &segment, block, pixels);
                let (output, block) = (&self.problem.output, self.first_block + block);
                let (first, planes, len) = output.planes(segment.group, block, &pixel_rows);
                let mode = (1.0, self.accumulate);
                // SAFETY: tasks write different rows of pixels or different channels.
                unsafe { planes.scatter_pixels(lanes, pixels, self.to, (first, len), mode) };
            }
        }
    }
}

impl Synthesise<'_> {
    /// Transforms the tiles of a segment, sixteen channels, into pixels.
    #[inline(always)]
    fn tiles<L: Lanes>(&self, lanes: L, segment: &Segment, block: usize, pixels: &mut [f32]) {
        let (cols, w, h) = (self.problem.cols(), self.problem.output.w, self.problem.output.h);
        let stride = self.layout.width(self.panel);
        for (index, tile_row) in segment.rows.clone().enumerate() {
            let tile = self.first_tile + (segment.first + index) * cols;
            let mut rows = [[std::ptr::null::<f32>(); A]; A];
            for (frequency, pointer) in rows.as_flattened_mut().iter_mut().enumerate() {
                let row = &self.from[self.layout.range(frequency, self.panel, tile..tile + cols)];
                *pointer = row[block * LANES..].as_ptr();
            }
            let height = (h - tile_row * M).min(M);
            let pixels = &mut pixels[index * M * w * LANES..][..height * w * LANES];
            for col in 0..cols {
                let mut products = [[lanes.zero(); A]; A];
                for (products, rows) in products.iter_mut().zip(&rows) {
                    for (product, row) in products.iter_mut().zip(rows) {
                        // SAFETY: every row holds `cols` times `stride` elements, less those before its block.
                        *product = unsafe { lanes.load_ptr(row.add(col * stride)) };
                    }
                }
                let outputs = square::<Output, L, A, M>(lanes, products);
                let width = (w - col * M).min(M);
                for (y, outputs) in outputs.iter().enumerate().take(height) {
                    for (x, &output) in outputs.iter().enumerate().take(width) {
                        // SAFETY: `y` is below the height of `pixels`, and `col * M + x` below its width.
                        unsafe {
                            lanes.store_ptr(pixels.as_mut_ptr().add((y * w + col * M + x) * LANES), output);
                        }
                    }
                }
            }
        }
    }
}
