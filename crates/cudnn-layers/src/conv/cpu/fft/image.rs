//! Tiles of images to spectra, and row spectra to results.

use super::bins::{BIN, Bins, Work};
use super::filter::lanes_of_filter;
use super::tiling::{Images, Tiling};
use super::transform::{fft, real_fft, real_inverse, untangle};
use crate::conv::ConvOp;
use crate::conv::cpu::planes::{Signals, store};
use tensor::Accumulate;
use tensor::cpu::{LANES, Lanes, SharedMut, WithLanes};

/// The number `index` of the blocks of sixteen channels of a micro-batch: its sample, group and block, where its planes
/// (of height and width `image`) begin, and these.
fn locate(index: usize, groups: usize, channels: usize, image: [usize; 2]) -> ([usize; 3], usize, Signals) {
    let (blocks, pixels) = (channels.div_ceil(LANES), image[0] * image[1]);
    let (group_of_all, block) = (index / blocks, index % blocks);
    let first = group_of_all * channels + block * LANES;
    let signals = Signals { count: (channels - block * LANES).min(LANES), stride: pixels };
    ([group_of_all / groups, group_of_all % groups, block], first * pixels, signals)
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
        let ([sample, group, block], first, signals) =
            locate(self.index, tiling.geometry.groups, images.channels, images.image);
        let source = (&self.elements[first..], signals);
        let columns = &mut self.scratch[..tiling.half() * tiling.column_stride()];
        let mut work = [Work::CLEARED; 3];
        let plane = tiling.plane(images);
        for tile in 0..tiling.tiles_of_image() {
            transform_rows(l, tiling, images, tile, source, columns, &mut work);
            let bin = (sample * tiling.tiles_of_image() + tile) * images.blocks() + block;
            for (j, column) in columns.chunks_exact_mut(tiling.column_stride()).enumerate() {
                let first = (group * tiling.half() + j) * t * plane + bin * BIN;
                assert!(first + (t - 1) * plane + BIN <= self.spectra.len(), "the spectra do not fit");
                // SAFETY: a column has T bins and one to spare. The assertion shows those of the spectra to lie inside;
                // they belong to this tile, block and group alone.
                unsafe {
                    let to = Bins::at(self.spectra.as_ptr().wrapping_add(first), plane);
                    fft(l, (t, false), Bins::new(column, BIN), &mut work[1], to, 0..t);
                    if j == 0 {
                        untangle(l, t, to); // this column holds two real ones
                    }
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

/// The task of transforming the rows of some tiles of the result back: of all tiles of one block of channels of one
/// sample, or of the gradients of all filters of one output channel.
pub(super) struct Synthesise<'a> {
    pub(super) tiling: &'a Tiling,
    pub(super) rows: &'a [f32],
    pub(super) out: SharedMut<'a>,
    pub(super) accumulate: Accumulate,
    pub(super) index: usize,
}

impl Synthesise<'_> {
    /// Tile `part` of the task: its number, where it begins in the result, the distance of rows there, and its extent.
    fn place(&self, part: usize) -> (usize, (usize, Signals), usize, [usize; 2]) {
        let (tiling, [rows, _, vectors]) = (self.tiling, self.tiling.extents);
        if tiling.op == ConvOp::BackwardFilter {
            let lanes = lanes_of_filter(tiling, self.index / rows, self.index % rows, part);
            return (self.index * vectors + part, lanes, tiling.result[1], tiling.result);
        }
        let (groups, image, corner) = (tiling.geometry.groups, tiling.domain, tiling.corner(part));
        let ([sample, group, block], first, signals) = locate(self.index, groups, tiling.columns, image);
        let row = group * rows + sample * tiling.tiles_of_image() + part;
        let extent = [0, 1].map(|axis| tiling.step[axis].min(image[axis] - corner[axis]));
        let first = first + corner[0] * image[1] + corner[1];
        (row * vectors + block, (first, signals), image[1], extent)
    }
}

impl WithLanes for Synthesise<'_> {
    #[inline(always)]
    fn call<L: Lanes>(self, l: L) {
        let (tiling, rows) = (self.tiling, self.tiling.result[0]);
        let (mut work, mut values) = ([Work::CLEARED; 2], Work::CLEARED);
        let is_filter = tiling.op == ConvOp::BackwardFilter;
        let parts = if is_filter { tiling.extents[2] } else { tiling.tiles_of_image() };
        for part in 0..parts {
            let (tile, (first, signals), stride, [height, width]) = self.place(part);
            assert!(height <= rows, "the spectra have fewer rows");
            // `[column][result row]` bins.
            let spectra = &self.rows[tile * tiling.half() * rows * BIN..][..tiling.half() * rows * BIN];
            for r in 0..height {
                let from = Bins::at(spectra[r * BIN..].as_ptr().cast_mut(), rows * BIN);
                // SAFETY: the assertion shows row `r` of the last column to be there, for reading.
                unsafe { real_inverse(l, tiling.t, from, &mut work, &mut values) };
                let values = &values.0[tiling.first[1] * LANES..];
                let mode = (tiling.scale(), self.accumulate);
                // SAFETY: every task writes the channel planes of its own block, or the filters of its own channel.
                unsafe { signals.scatter_pixels(l, values, &self.out, (first + r * stride, width), mode) };
            }
        }
    }
}
