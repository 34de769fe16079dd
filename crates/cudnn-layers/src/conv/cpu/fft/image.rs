//! Tiles of images to spectra, and row spectra of results to images.

use super::bins::{BIN, Bins, Work};
use super::tiling::{Images, Tiling};
use super::transform::{fft, real_fft, real_inverse, untangle};
use crate::conv::cpu::planes::{Signals, store};
use std::ops::Range;
use tensor::Accumulate;
use tensor::cpu::{LANES, Lanes, SharedMut, WithLanes};

/// The number `index` of the blocks of sixteen channels of a micro-batch: its sample, group and block, its planes of so
/// many `pixels` as a range of the images' elements, and how many these are.
fn locate(index: usize, groups: usize, channels: usize, pixels: usize) -> ([usize; 3], Range<usize>, usize) {
    let blocks = channels.div_ceil(LANES);
    let (group_of_all, block) = (index / blocks, index % blocks);
    let first = group_of_all * channels + block * LANES;
    let count = (channels - block * LANES).min(LANES);
    let place = [group_of_all / groups, group_of_all % groups, block];
    (place, first * pixels..(first + count) * pixels, count)
}

/// The task of transforming all tiles of one block of channels of one sample.
pub(super) struct Analyse<'a> {
    pub(super) tiling: &'a Tiling,
    pub(super) images: &'a Images,
    pub(super) elements: &'a [f32],
    pub(super) spectra: SharedMut<'a>,
    pub(super) index: usize,
    pub(super) scratch: &'a mut [f32],
}

impl WithLanes for Analyse<'_> {
    #[inline(always)]
    fn call<L: Lanes>(self, l: L) {
        let (tiling, images, t) = (self.tiling, self.images, self.tiling.t);
        let groups = tiling.geometry.groups;
        let ([sample, group, block], planes, count) =
            locate(self.index, groups, images.channels, images.pixels());
        let source = (&self.elements[planes], Signals { count, stride: images.pixels() });
        let columns = &mut self.scratch[..tiling.half() * tiling.column_stride()];
        let mut work = [Work::CLEARED; 3];
        let plane = tiling.plane(images);
        for tile in 0..tiling.tiles_of_image() {
            transform_rows(l, tiling, images, tile, source, columns, &mut work);
            let bin = (sample * tiling.tiles_of_image() + tile) * images.blocks() + block;
            for (j, column) in columns.chunks_exact_mut(tiling.column_stride()).enumerate() {
                let first = (group * tiling.half() + j) * t * plane + bin * BIN;
                assert!(first + (t - 1) * plane + BIN <= self.spectra.len(), "the spectra do not fit");
                // SAFETY: the assertion shows the bins to lie inside. They belong to this tile, block and group alone.
                unsafe {
                    let to = Bins::at(self.spectra.as_ptr().wrapping_add(first), plane);
                    transform_column(l, t, column, j == 0, &mut work, to);
                }
            }
        }
    }
}

/// Transforms the rows of one tile, into columns of bins.
#[inline(always)]
fn transform_rows<L: Lanes>(
    l: L,
    tiling: &Tiling,
    images: &Images,
    tile: usize,
    (planes, signals): (&[f32], Signals),
    columns: &mut [f32],
    [values, work @ ..]: &mut [Work; 3],
) {
    let corner = tiling.corner(tile);
    let [ys, xs] = [0, 1].map(|axis| images.inside(axis, corner[axis]));
    let stride = tiling.column_stride();
    assert!(columns.len() >= tiling.half() * stride, "the columns do not fit");
    *values = Work::CLEARED;
    for y in ys.clone() {
        for x in xs.clone().step_by(LANES) {
            let len = (xs.end - x).min(LANES);
            let vectors = signals.gather(l, &planes[y * images.image[1] + x..], len);
            let mut at = images.position(1, corner[1], x);
            for &vector in &vectors[..len] {
                store(l, &mut values.0, at * LANES, vector);
                at = if images.reversed { at.wrapping_sub(1) } else { at + 1 };
            }
        }
        let row = images.position(0, corner[0], y);
        // SAFETY: `row` is below T, so this row of all columns lies inside, as the assertion above has shown.
        unsafe { real_fft(l, tiling.t, values, work, Bins::new(&mut columns[row * BIN..], stride)) };
    }
    let filled = if ys.is_empty() {
        0..0
    } else {
        let ends = [ys.start, ys.end - 1].map(|y| images.position(0, corner[0], y));
        ends[0].min(ends[1])..ends[0].max(ends[1]) + 1
    };
    for column in columns.chunks_exact_mut(stride) {
        column[..filled.start * BIN].fill(0.0);
        column[filled.end * BIN..].fill(0.0);
    }
}

/// Transforms one column of row spectra; `packed` marks the first, which holds two real ones.
///
/// # Safety
/// The `t` bins of `to` must be valid for writing.
#[inline(always)]
unsafe fn transform_column<L: Lanes>(
    l: L,
    t: usize,
    column: &mut [f32],
    packed: bool,
    [spare, work, _]: &mut [Work; 3],
    to: Bins,
) {
    assert!(column.len() >= t * BIN, "the column does not fit");
    let (from, spare) = (Bins::new(column, BIN), spare.bins());
    // SAFETY: the assertion shows the column to be there; the caller promises `to`.
    unsafe {
        if packed {
            fft(l, (t, false), from, work, spare, 0..t);
            untangle(l, t, spare);
            for index in 0..t {
                to.store(l, index, spare.load(l, index));
            }
        } else {
            fft(l, (t, false), from, work, to, 0..t);
        }
    }
}

/// The task of transforming the rows of all tiles of one block of channels of one sample back, into the result.
pub(super) struct Synthesise<'a> {
    pub(super) tiling: &'a Tiling,
    pub(super) rows: &'a [f32],
    pub(super) out: SharedMut<'a>,
    pub(super) accumulate: Accumulate,
    pub(super) index: usize,
}

impl WithLanes for Synthesise<'_> {
    #[inline(always)]
    fn call<L: Lanes>(self, l: L) {
        let (tiling, image) = (self.tiling, self.tiling.result_image());
        let (groups, pixels) = (tiling.geometry.groups, image[0] * image[1]);
        let ([sample, group, block], planes, count) = locate(self.index, groups, tiling.columns, pixels);
        // SAFETY: every task writes the channel planes of its own block.
        let planes = unsafe { self.out.slice(planes) };
        let signals = Signals { count, stride: pixels };
        let (mut work, mut values) = ([Work::CLEARED; 2], Work::CLEARED);
        let tiles = tiling.tiles_of_image();
        for tile in 0..tiles {
            let corner = tiling.corner(tile);
            let row = group * tiling.extents[0] + sample * tiles + tile;
            let spectra = tiling.result_tile(self.rows, row * tiling.extents[2] + block);
            let end = (corner[1] + tiling.step[1]).min(image[1]);
            for r in 0..tiling.step[0].min(image[0] - corner[0]) {
                row_values(l, tiling, spectra, r, &mut work, &mut values);
                for x in (corner[1]..end).step_by(LANES) {
                    let len = (end - x).min(LANES);
                    let vectors = vectors(l, &values.0, tiling.first[1] + x - corner[1], len);
                    let to = (&mut planes[(corner[0] + r) * image[1] + x..], len);
                    signals.scatter(l, vectors, to, tiling.scale(), self.accumulate);
                }
            }
        }
    }
}

/// The values of row `r` of a tile of the result.
#[inline(always)]
pub(super) fn row_values<L: Lanes>(
    l: L,
    tiling: &Tiling,
    spectra: &[f32],
    r: usize,
    work: &mut [Work; 2],
    values: &mut Work,
) {
    let rows = tiling.result[0];
    assert!(r < rows && spectra.len() >= tiling.half() * rows * BIN, "row {r} does not exist");
    // SAFETY: the assertion shows row `r` of the last column to be there.
    unsafe { real_inverse(l, tiling.t, Bins::read(&spectra[r * BIN..], rows * BIN), work, values) };
}

/// Values `first..first + len`, at most sixteen.
#[inline(always)]
pub(super) fn vectors<L: Lanes>(l: L, values: &[f32], first: usize, len: usize) -> [L::V; LANES] {
    let mut vectors = [l.zero(); LANES];
    for (vector, value) in vectors.iter_mut().zip(values[first * LANES..][..len * LANES].as_chunks().0) {
        *vector = l.load(value);
    }
    vectors
}
