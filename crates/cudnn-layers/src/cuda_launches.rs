//! What the launches of all CUDA kernels share: grids, and the arguments that `common.cuh` knows.

use crate::AxisExtents;
use bytemuck::{Pod, Zeroable};
use tensor::cuda::{Cuda, Grid};
use tensor::{Accumulate, ElementType, Out, View, ViewMut};

/// `THREADS` and `TILE` of `common.cuh`.
pub(crate) const THREADS: u32 = 256;
const TILE: usize = 2048;

/// What stands before the CUDA kernels of each file.
pub(crate) const COMMON: &str = include_str!("common.cuh");

/// `sources!(file)`: the CUDA kernels of an operation's folder, as `SOURCES`, for blobs of each type and in each order;
/// [`of_type`] knows their places. Where there are no blobs, all are the same.
macro_rules! sources {
    ($file:literal) => {
        static SOURCES: [tensor::cuda::Source; 4] = {
            use tensor::cuda::Source;
            use $crate::cuda_launches::COMMON;
            const OWN: &str = include_str!($file);
            const NHWC: &str = "#define BLOBS_IN_NHWC\n";
            const BF16: &str = "#define BLOBS_OF_BF16\n";
            [
                Source { name: $file, text: &[COMMON, OWN] },
                Source { name: concat!($file, " in NHWC"), text: &[NHWC, COMMON, OWN] },
                Source { name: concat!($file, " in BF16"), text: &[BF16, COMMON, OWN] },
                Source { name: concat!($file, " in BF16 and NHWC"), text: &[BF16, NHWC, COMMON, OWN] },
            ]
        };
    };
}

/// The place in `SOURCES` of what is for all these blobs, and NCHW: where order makes no difference, the only one. For
/// NHWC it is the next.
pub(crate) fn of_type(blobs: &[Option<View<'_>>]) -> usize {
    let mut dtypes = blobs.iter().flatten().map(|blob| blob.format().dtype);
    let dtype = dtypes.next().expect("an operation has a blob");
    assert!(dtypes.all(|other| other == dtype), "blobs of one operation are of one type, unlike {blobs:?}");
    match dtype {
        ElementType::F32 => 0,
        ElementType::Bf16 => 2,
        ElementType::U8 => panic!("bytes are no blob"),
    }
}

/// The place in `SOURCES` of what is for blobs that are seen as `extents`, and the grids of CUDA kernels that go
/// through them; where no pixels lie beside each other, channels do.
pub(crate) fn of_channels(cuda: &Cuda, blobs: &[Option<View<'_>>], extents: &AxisExtents) -> (usize, Grids) {
    (of_type(blobs) + usize::from(extents.inner == 1), Grids::new(cuda.info().multiprocessors, extents))
}

/// `COLUMNS` and `SUM_THREADS` of `common.cuh`.
const COLUMNS: usize = 64;
pub(crate) const SUM_THREADS: u32 = 512;

/// The grids for blobs that are seen from their channels.
#[derive(Clone, Copy)]
pub(crate) struct Grids {
    /// Of sums, with a block for each channel, or so many of them, and part of the samples.
    pub(crate) sums: Grid,
    /// Of maps.
    pub(crate) map: Grid,
}

impl Grids {
    fn new(multiprocessors: u32, extents: &AxisExtents) -> Self {
        if extents.inner == 1 {
            return Self::of_rows(multiprocessors, extents);
        }
        let channels = u32::try_from(extents.axis).expect("a GPU has fewer than 2^32 blocks");
        let blocks = [channels, parts(multiprocessors, extents), 1];
        Self { sums: Grid { blocks, threads: THREADS, at_once: false }, map: tiles(extents.len()) }
    }

    /// Where channels lie side by side, both with a block for each of so many channels and parts of rows. Of sums a
    /// large one per multiprocessor, so that there is little to add up at the end; those of one channel wait for each
    /// other. Of maps enough to keep memory busy to the end, each large enough to make good for reading its channels'
    /// factors.
    fn of_rows(multiprocessors: u32, extents: &AxisExtents) -> Self {
        let columns = extents.axis.div_ceil(COLUMNS).max(1);
        let of_column = extents.len() / columns;
        let grid = |blocks: usize, least: usize, threads| {
            let parts = (blocks / columns).min(of_column / least).clamp(1, extents.outer.clamp(1, 1 << 15));
            let columns = u32::try_from(columns).expect("a GPU has fewer than 2^32 blocks");
            Grid { blocks: [columns, parts as u32, 1], threads, at_once: false }
        };
        let multiprocessors = multiprocessors as usize;
        let blocks = (extents.len() / MAP_LEN).max(4 * multiprocessors);
        let sums = grid(multiprocessors, BLOCK_LEN, SUM_THREADS);
        Self { sums: Grid { at_once: sums.blocks[1] > 1, ..sums }, map: grid(blocks, TILE, THREADS) }
    }
}

/// Where an operand begins, null for none.
pub(crate) fn numbers(view: Option<View<'_>>) -> u64 {
    view.map_or(0, |view| view.numbers())
}

/// `launch!(cuda, place, "kernel", grid, [arguments])`: launches a CUDA kernel of one of the file's `SOURCES` with these
/// values, and with the obligations of [`Cuda::launch`].
macro_rules! launch {
    ($cuda:expr, $place:expr, $kernel:expr, $grid:expr, [$($argument:expr),* $(,)?]) => {
        $cuda.launch(&SOURCES[$place], $kernel, $grid, &[$(bytemuck::bytes_of(&$argument)),*])
    };
}

pub(crate) use {launch, sources};

/// The grid of an element-wise CUDA kernel over `len` elements: one block per tile.
pub(crate) fn tiles(len: usize) -> Grid {
    Grid::line(tile_count(len), THREADS)
}

/// Tiles that `len` elements fill.
pub(crate) fn tile_count(len: usize) -> u32 {
    u32::try_from(len.div_ceil(TILE)).expect("no GPU has 16 TiB of memory")
}

/// The grid of a CUDA kernel with a thread for each of `count` elements.
pub(crate) fn threads(count: usize) -> Grid {
    let blocks = u32::try_from(count.div_ceil(THREADS as usize)).expect("no GPU has 4 TiB of memory");
    Grid::line(blocks, THREADS)
}

/// The CUDA kernels' `add`.
pub(crate) fn add(accumulate: Accumulate) -> i32 {
    i32::from(accumulate == Accumulate::Add)
}

/// Where a gradient goes, null for nowhere, and whether it is added.
pub(crate) fn destination(gradient: &Option<Out<'_>>) -> (u64, i32) {
    let to = gradient.as_ref();
    to.map_or((0, 0), |gradient| (gradient.to.address::<f32>(), add(gradient.accumulate)))
}

/// `Divisor` of `common.cuh`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
pub(crate) struct Divisor {
    divisor: u64,
    multiplier: u64,
}

impl Divisor {
    /// For dividends up to `largest`.
    pub(crate) fn new(divisor: usize, largest: usize) -> Self {
        let product = divisor as u128 * largest as u128;
        let by_multiplication = divisor > 1 && product <= u128::from(u64::MAX);
        let divisor = divisor as u64;
        Self { divisor, multiplier: if by_multiplication { u64::MAX / divisor + 1 } else { 0 } }
    }
}

/// `Extents` of `common.cuh`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
pub(crate) struct Extents {
    outer: u64,
    axis: Divisor,
    inner: Divisor,
}

impl Extents {
    /// Empty extents become no samples, because the CUDA kernels divide by the other two.
    pub(crate) fn new(extents: &AxisExtents) -> Self {
        let &AxisExtents { outer, axis, inner } = extents;
        assert!(u32::try_from(inner).is_ok(), "planes of {inner} elements");
        Self {
            outer: if extents.is_empty() { 0 } else { outer as u64 },
            axis: Divisor::new(axis, extents.len()),
            inner: Divisor::new(inner.max(1), extents.len()),
        }
    }
}

/// Blocks per multiprocessor that are enough to keep memory busy to the end.
const BLOCKS: usize = 16;
/// Elements that are worth a block of their own; and that make a block of a map, where there are many.
const BLOCK_LEN: usize = 4096;
const MAP_LEN: usize = 32 << 10;
/// Channels, or groups of them, that may be cut: as many as `is_last_part` and `wait_for_parts` of `common.cuh` can count.
const COUNTERS: u32 = 4096;

/// Into how many parts `sum_channels` of `common.cuh` cuts the samples. It depends on the blob and the GPU's size only,
/// and so do the sums. One part needs neither partial sums nor a second CUDA kernel.
fn parts(multiprocessors: u32, extents: &AxisExtents) -> u32 {
    let wanted = (BLOCKS * multiprocessors as usize).div_ceil(extents.axis.max(1));
    wanted.min(extents.per_index() / BLOCK_LEN).clamp(1, extents.outer.clamp(1, 1024)) as u32
}

/// The `partials` for a CUDA kernel that adds up at most two sums for each channel by `sum_channels`.
///
/// # Panics
/// If `scratch` has no room for them.
pub(crate) fn partials(scratch: &ViewMut<'_>, extents: &AxisExtents, grid: Grid) -> u64 {
    let [counters, parts, _] = grid.blocks;
    let len = if parts == 1 { 0 } else { 2 * extents.axis * parts as usize };
    assert!(
        len * size_of::<f64>() <= scratch.byte_len() && (parts == 1 || counters <= COUNTERS),
        "scratch memory and counters for {parts} parts of {extents:?}"
    );
    scratch.address::<u8>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    #[test]
    fn multiplication_divides() {
        let mut rng = tensor::rng::stream(1, 0);
        for _ in 0..100_000 {
            let bits = [rng.random_range(2..32), rng.random_range(1..33)];
            let divisor = rng.random_range(2..1usize << bits[0]);
            let largest = rng.random_range(0..1usize << bits[1]);
            let Divisor { multiplier, .. } = Divisor::new(divisor, largest);
            assert_ne!(multiplier, 0);
            for dividend in
                [largest, largest / divisor * divisor, (largest / divisor * divisor).saturating_sub(1)]
            {
                let quotient = (dividend as u128 * u128::from(multiplier)) >> 64;
                assert_eq!(quotient, (dividend / divisor) as u128, "{dividend} / {divisor}");
            }
        }
        assert_eq!(Divisor::new(1, 5).multiplier, 0);
        assert_eq!(Divisor::new(1 << 30, 1 << 40).multiplier, 0);
    }

    #[test]
    fn large_channels_are_cut_and_small_ones_are_not() {
        let parts = |outer, axis, inner| parts(132, &AxisExtents { outer, axis, inner });
        assert_eq!(parts(128, 64, 112 * 112), 33);
        assert_eq!(parts(128, 512, 49), 1);
        assert_eq!(parts(256, 4096, 1), 1);
        assert_eq!(parts(100_000, 10, 1), 24);
        assert_eq!(parts(2, 1, 1 << 20), 2);
        assert_eq!(parts(0, 5, 0), 1);
        let rows = |outer, axis| {
            let Grids { sums, map } = Grids::new(132, &AxisExtents { outer, axis, inner: 1 });
            [sums, map].map(|grid| [grid.blocks[0], grid.blocks[1]])
        };
        assert_eq!(rows(256 * 56 * 56, 64), [[1, 132], [1, 1568]]);
        assert_eq!(rows(256 * 49, 2048), [[32, 4], [32, 24]]);
        assert_eq!(rows(32 * 49, 512), [[8, 16], [8, 49]]);
        assert_eq!(rows(3, 5), [[1, 1], [1, 1]]);
        assert_eq!(rows(0, 5), [[1, 1], [1, 1]]);
    }
}
