//! Tiles of images to spectra, and row spectra of results to images.

use super::{
    complex::{
        BIN, Bin, C, CLEARED, ComplexLanes, MAX, Row, Work, fft, inlined, real_fft, real_inverse, untangle,
    },
    lanes::Signals,
    plan::{Images, Plan},
};
use std::ops::Range;
use tensor::{
    Accumulate,
    cpu::{
        SharedMut,
        simd::{LANES, Lanes, WithLanes},
    },
};

/// Slices as bins.
#[inline(always)]
pub(super) fn bins(elements: &[f32]) -> &[Bin] {
    elements.as_chunks().0.as_chunks().0
}

/// Slices as bins.
#[inline(always)]
pub(super) fn bins_mut(elements: &mut [f32]) -> &mut [Bin] {
    elements.as_chunks_mut().0.as_chunks_mut().0
}

/// Which sixteen channels of which sample.
#[derive(Clone, Copy, Debug)]
struct Block {
    sample: usize,
    group: usize,
    block: usize,
}

impl Block {
    /// The number `index` of all blocks of a micro-batch.
    fn new(index: usize, groups: usize, blocks: usize) -> Self {
        Self { sample: index / blocks / groups, group: index / blocks % groups, block: index % blocks }
    }

    /// The channel planes of this block as a range of the images' elements, and how many there are.
    fn planes(&self, groups: usize, channels: usize, pixels: usize) -> (Range<usize>, usize) {
        let first = (self.sample * groups + self.group) * channels + self.block * LANES;
        let count = (channels - self.block * LANES).min(LANES);
        (first * pixels..(first + count) * pixels, count)
    }
}

/// The task of transforming all tiles of one block of channels of one sample.
pub(super) struct Analyse<'a> {
    pub(super) plan: &'a Plan,
    pub(super) images: &'a Images,
    pub(super) elements: &'a [f32],
    pub(super) spectra: SharedMut<'a>,
    pub(super) index: usize,
    pub(super) scratch: &'a mut [f32],
}

impl Analyse<'_> {
    /// The number of tasks.
    pub(super) fn tasks(plan: &Plan, images: &Images) -> usize {
        plan.geometry.n * plan.geometry.groups * images.blocks()
    }
}

impl WithLanes for Analyse<'_> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, l: L) {
        if self.plan.t == 32 { self.tiles::<L, 32>(l) } else { self.tiles::<L, 16>(l) }
    }
}

impl Analyse<'_> {
    #[inline(always)]
    fn tiles<L: Lanes, const T: usize>(self, l: L) {
        let (plan, images, groups) = (self.plan, self.images, self.plan.geometry.groups);
        let block = Block::new(self.index, groups, images.blocks());
        let (planes, count) = block.planes(groups, images.channels, images.pixels());
        let planes = &self.elements[planes];
        let signals = Signals { count, stride: images.pixels() };
        let columns = bins_mut(&mut self.scratch[..T / 2 * (T + 1) * BIN]);
        let mut work = [CLEARED; 2];
        let tiles = plan.tiles[0] * plan.tiles[1];
        for tile in 0..tiles {
            let corner = [tile / plan.tiles[1] * plan.step[0], tile % plan.tiles[1] * plan.step[1]];
            transform_rows::<L, T>(l, images, corner, (planes, signals), columns, &mut work);
            let bin = (block.sample * tiles + tile) * images.blocks() + block.block;
            let plane = plan.plane(images);
            let group = block.group * T * T / 2 * plane + bin * BIN;
            for (j, column) in columns.chunks_exact(T + 1).enumerate() {
                let spectra = self.spectra;
                transform_column::<L, T>(
                    l,
                    column,
                    j == 0,
                    &mut work,
                    #[inline(always)]
                    |v, z| {
                        let at = group + (j * T + v) * plane;
                        // SAFETY: these bins belong to this tile, block and group alone.
                        let to = unsafe { spectra.slice(at..at + BIN) };
                        l.store_bin(&mut bins_mut(to)[0], z);
                    },
                );
            }
        }
    }
}

/// Transforms the rows of one tile, into columns `T + 1` bins apart.
#[inline(always)]
fn transform_rows<L: Lanes, const T: usize>(
    l: L,
    images: &Images,
    corner: [usize; 2],
    (planes, signals): (&[f32], Signals),
    columns: &mut [Bin],
    work: &mut [Work; 2],
) {
    let begin = [0, 1].map(|axis| images.start[axis] + corner[axis] as isize);
    // What the tile takes from the image: the rest of it is zero.
    let inside = [0, 1].map(|axis| {
        let clamp = |position: isize| position.clamp(0, images.image[axis] as isize) as usize;
        clamp(begin[axis])..clamp(begin[axis] + images.extent[axis] as isize)
    });
    let position = |axis: usize, at: usize| {
        let forwards = (at as isize - begin[axis]) as usize;
        if images.reversed { images.extent[axis] - 1 - forwards } else { forwards }
    };
    let mut values = Row::CLEARED;
    let mut filled = [false; MAX];
    for y in inside[0].clone() {
        for x in inside[1].clone().step_by(LANES) {
            let len = (inside[1].end - x).min(LANES);
            let vectors = signals.gather(l, planes, y * images.image[1] + x, len);
            for (i, &vector) in vectors.iter().enumerate().take(len) {
                l.store(&mut values.0[position(1, x + i)], vector);
            }
        }
        let row = position(0, y);
        filled[row] = true;
        real_fft(
            l,
            T,
            work,
            &values,
            #[inline(always)]
            |j, z| l.store_bin(&mut columns[j * (T + 1) + row], z),
        );
    }
    for row in (0..T).filter(|&row| !filled[row]) {
        for column in columns.chunks_exact_mut(T + 1) {
            column[row] = [[0.0; LANES]; 2];
        }
    }
}

/// Transforms one column of row spectra; `packed` marks the first, which holds two real ones.
#[inline(always)]
fn transform_column<L: Lanes, const T: usize>(
    l: L,
    column: &[Bin],
    packed: bool,
    work: &mut [Work; 2],
    mut output: impl FnMut(usize, C<L>),
) {
    let [work, packed_column] = work;
    let column = &column[..T];
    let input = inlined(
        #[inline(always)]
        |r: usize| l.load_bin(&column[r]),
    );
    if packed {
        let store = inlined(
            #[inline(always)]
            |v: usize, z: C<L>| l.store_bin(&mut packed_column.0[v], z),
        );
        fft(l, T, false, work, input, store);
        untangle(l, T, packed_column);
        for (v, bin) in packed_column.0.iter().enumerate().take(T) {
            output(v, l.load_bin(bin));
        }
    } else {
        fft(l, T, false, work, input, output);
    }
}

/// The task of transforming the rows of all tiles of one block of channels of one sample back, into the result.
pub(super) struct Synthesise<'a> {
    pub(super) plan: &'a Plan,
    pub(super) rows: &'a [f32],
    pub(super) out: SharedMut<'a>,
    pub(super) accumulate: Accumulate,
    pub(super) index: usize,
}

impl Synthesise<'_> {
    /// The number of tasks.
    pub(super) fn tasks(plan: &Plan) -> usize {
        plan.geometry.n * plan.geometry.groups * plan.extents[2]
    }
}

impl WithLanes for Synthesise<'_> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, l: L) {
        if self.plan.t == 32 { self.tiles::<L, 32>(l) } else { self.tiles::<L, 16>(l) }
    }
}

impl Synthesise<'_> {
    #[inline(always)]
    fn tiles<L: Lanes, const T: usize>(self, l: L) {
        let (plan, groups) = (self.plan, self.plan.geometry.groups);
        let block = Block::new(self.index, groups, plan.extents[2]);
        let image = plan.result_image();
        let (planes, count) = block.planes(groups, plan.columns, image[0] * image[1]);
        // SAFETY: every task writes the channel planes of its own block.
        let planes = unsafe { self.out.slice(planes) };
        let signals = Signals { count, stride: image[0] * image[1] };
        let tiles = plan.tiles[0] * plan.tiles[1];
        let tile_len = plan.half() * plan.result[0];
        for tile in 0..tiles {
            let corner = [tile / plan.tiles[1] * plan.step[0], tile % plan.tiles[1] * plan.step[1]];
            let row = block.group * plan.extents[0] + block.sample * tiles + tile;
            let spectra = &bins(self.rows)[(row * plan.extents[2] + block.block) * tile_len..][..tile_len];
            let mut work = [CLEARED; 2];
            let mut values = Row::CLEARED;
            for r in 0..plan.step[0].min(image[0] - corner[0]) {
                row_values::<L, T>(l, spectra, (r, plan.result[0]), &mut work, &mut values);
                let end = (corner[1] + plan.step[1]).min(image[1]);
                for x in (corner[1]..end).step_by(LANES) {
                    let len = (end - x).min(LANES);
                    let at = plan.first[1] + x - corner[1];
                    let mut vectors = [l.zero(); LANES];
                    for (i, vector) in vectors.iter_mut().enumerate().take(len) {
                        *vector = l.load(&values.0[at + i]);
                    }
                    let run = ((corner[0] + r) * image[1] + x, len);
                    signals.scatter(l, vectors, planes, run, (plan.scale(), self.accumulate));
                }
            }
        }
    }
}

/// The values of row `r` of `rows` from row spectra `[column][row]`.
#[inline(always)]
pub(super) fn row_values<L: Lanes, const T: usize>(
    l: L,
    spectra: &[Bin],
    (r, rows): (usize, usize),
    work: &mut [Work; 2],
    values: &mut Row,
) {
    real_inverse(
        l,
        T,
        work,
        #[inline(always)]
        |j| l.load_bin(&spectra[j * rows + r]),
        #[inline(always)]
        |i, [even, odd]| {
            l.store(&mut values.0[2 * i], even);
            l.store(&mut values.0[2 * i + 1], odd);
        },
    );
}
