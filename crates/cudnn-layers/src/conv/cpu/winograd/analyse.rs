//! From images to the frequencies of their tiles: `B^T x B`, and `A dy A^T` for the gradient of a filter.

use super::layout::{Images, Problem, Segment, Spectrum};
use super::minimal::{A, M, Transform};
use crate::conv::cpu::{planes::pixels_len, split};
use std::{marker::PhantomData, ops::Range};
use tensor::cpu::{LANES, Lanes, SharedMut, WithLanes, dispatch};

/// Transforms rows of tiles of one operand, all channels of a group.
///
/// A tile is a window of `IN x IN` pixels, and windows lie `M` apart. Columns of a row of tiles are
/// transformed first and once, though neighbouring windows share some.
struct Analyse<'a, T, const IN: usize> {
    transform: PhantomData<T>,
    problem: &'a Problem,
    images: Images,
    /// Zeros above and left of the image.
    pad: [usize; 2],
    from: &'a [f32],
    group: usize,
    /// Rows of tiles, counted over all images.
    rows: Range<usize>,
    /// Rows are tiles, columns channels.
    layout: Spectrum,
    to: &'a SharedMut<'a>,
    /// The row of `layout` that the first tile becomes.
    first_tile: usize,
    scratch: &'a mut [f32],
}

/// Runs [`Analyse`].
pub(super) fn analyse<T: Transform<IN, A>, const IN: usize>(
    problem: &Problem,
    (images, pad, from): (Images, [usize; 2], &[f32]),
    (group, rows): (usize, Range<usize>),
    (layout, to, first_tile): (Spectrum, &SharedMut<'_>, usize),
    scratch: &mut [f32],
) {
    let transform = PhantomData::<T>;
    dispatch(Analyse { transform, problem, images, pad, from, group, rows, layout, to, first_tile, scratch });
}

/// Scratch of [`Analyse`] for up to `rows` rows of tiles.
pub(super) fn analyse_scratch<const IN: usize>(problem: &Problem, images: &Images, rows: usize) -> usize {
    let most = (rows.min(problem.rows_per_image()) * M + IN).min(images.h);
    pixels_len(most * images.w) + (A * width::<IN>(problem) + images.w) * LANES
}

/// Columns of pixels that a row of tiles covers.
fn width<const IN: usize>(problem: &Problem) -> usize {
    (problem.cols() - 1) * M + IN
}

impl<T: Transform<IN, A>, const IN: usize> WithLanes for Analyse<'_, T, IN> {
    #[inline(always)]
    fn call<L: Lanes>(mut self, lanes: L) {
        let lens = [A * width::<IN>(self.problem) * LANES, self.images.w * LANES];
        let ([tall, zeros], scratch) = split(std::mem::take(&mut self.scratch), lens);
        tall.fill(0.0); // The columns of padding stay so.
        zeros.fill(0.0);
        let layout = self.layout;
        let of_panel = |panel| layout.panel_blocks(panel).map(move |block| (panel, block));
        for segment in self.problem.segments(self.group, self.rows.clone()) {
            let pixel_rows = self.pixel_rows(&segment);
            for (panel, block) in (0..layout.panels()).flat_map(of_panel) {
                let (first, planes, len) = self.images.planes(segment.group, block, &pixel_rows);
                planes.gather_pixels(lanes, &self.from[first..], len, scratch);
                for (index, tile_row) in segment.rows.clone().enumerate() {
                    self.columns(lanes, tile_row, &pixel_rows, scratch, zeros, tall);
                    let tile = self.first_tile + (segment.first + index) * self.problem.cols();
                    self.tiles(lanes, tall, (panel, block), tile);
                }
            }
        }
    }
}

impl<T: Transform<IN, A>, const IN: usize> Analyse<'_, T, IN> {
    /// The rows of pixels that a segment's windows touch.
    fn pixel_rows(&self, segment: &Segment) -> Range<usize> {
        let start = (segment.rows.start * M).saturating_sub(self.pad[0]);
        let end = ((segment.rows.end - 1) * M + IN).saturating_sub(self.pad[0]).min(self.images.h);
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
        let w = self.images.w;
        let mut rows = [zeros; IN];
        for (i, row) in rows.iter_mut().enumerate() {
            let y = (tile_row * M + i).wrapping_sub(self.pad[0]);
            if pixel_rows.contains(&y) {
                *row = &pixels[(y - pixel_rows.start) * w * LANES..][..w * LANES];
            }
        }
        let width = width::<IN>(self.problem);
        let valid = w.min(width - self.pad[1]);
        let tall = &mut tall[self.pad[1] * LANES..];
        assert!(((A - 1) * width + valid) * LANES <= tall.len() && valid * LANES <= zeros.len());
        for column in 0..valid {
            let mut window = [lanes.zero(); IN];
            for (element, row) in window.iter_mut().zip(&rows) {
                // SAFETY: every row holds at least `valid` pixels.
                *element = unsafe { lanes.load_ptr(row.as_ptr().add(column * LANES)) };
            }
            for (frequency, &value) in T::apply(lanes, window).iter().enumerate() {
                // SAFETY: the assert covers the last column of the last frequency.
                unsafe {
                    lanes.store_ptr(tall.as_mut_ptr().add((frequency * width + column) * LANES), value)
                };
            }
        }
    }

    /// Transforms the rows of every window of a row of tiles and stores them as `tile` and its successors.
    #[inline(always)]
    fn tiles<L: Lanes>(&self, lanes: L, tall: &[f32], (panel, block): (usize, usize), tile: usize) {
        let cols = self.problem.cols();
        let width = width::<IN>(self.problem);
        let stride = self.layout.width(panel);
        let offset = (block - self.layout.panel_blocks(panel).start) * LANES;
        assert!(A * width * LANES <= tall.len());
        for vertical in 0..A {
            let row = &tall[vertical * width * LANES..][..width * LANES];
            let mut targets: [&mut [f32]; A] = std::array::from_fn(|_| Default::default());
            for (horizontal, target) in targets.iter_mut().enumerate() {
                let range = self.layout.range(vertical * A + horizontal, panel, tile..tile + cols);
                // SAFETY: frequencies are disjoint, and tasks write different tiles.
                *target = unsafe { &mut self.to.slice(range)[offset..] };
            }
            for col in 0..cols {
                let mut window = [lanes.zero(); IN];
                for (i, element) in window.iter_mut().enumerate() {
                    // SAFETY: the last window ends with the row, whose length `width` says.
                    *element = unsafe { lanes.load_ptr(row.as_ptr().add((col * M + i) * LANES)) };
                }
                let transformed = T::apply(lanes, window);
                for (target, &value) in targets.iter_mut().zip(&transformed) {
                    // SAFETY: a target holds `cols` rows of `stride` columns, less the `offset` that a block starts at.
                    unsafe { lanes.store_ptr(target.as_mut_ptr().add(col * stride), value) };
                }
            }
        }
    }
}
