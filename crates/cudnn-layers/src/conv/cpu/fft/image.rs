//! Tiles of images to spectra, and row spectra of results to images.

use super::bins::{BIN, Bins, Work};
use super::tiling::{Images, Tiling};
use super::transform::{fft, real_fft, real_inverse, untangle};
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
        let (tiling, image) = (self.tiling, self.tiling.domain);
        let groups = tiling.geometry.groups;
        let ([sample, group, block], start, signals) = locate(self.index, groups, tiling.columns, image);
        let (mut work, mut values) = ([Work::CLEARED; 2], Work::CLEARED);
        let tiles = tiling.tiles_of_image();
        for tile in 0..tiles {
            let corner = tiling.corner(tile);
            let row = group * tiling.extents[0] + sample * tiles + tile;
            let spectra = tiling.result_tile(self.rows, row * tiling.extents[2] + block);
            let end = (corner[1] + tiling.step[1]).min(image[1]);
            for r in 0..tiling.step[0].min(image[0] - corner[0]) {
                row_values(l, tiling, spectra, r, &mut work, &mut values);
                let values = &values.0[tiling.first[1] * LANES..];
                let first = start + (corner[0] + r) * image[1] + corner[1];
                let mode = (tiling.scale(), self.accumulate);
                // SAFETY: every task writes the channel planes of its own block.
                unsafe { signals.scatter_pixels(l, values, &self.out, (first, end - corner[1]), mode) };
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
    let from = Bins::at(spectra[r * BIN..].as_ptr().cast_mut(), rows * BIN);
    // SAFETY: the assertion shows row `r` of the last column to be there, for reading.
    unsafe { real_inverse(l, tiling.t, from, work, values) };
}
