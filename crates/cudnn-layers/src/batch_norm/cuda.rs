//! Batch normalisation on the GPU.

use super::{AffineGradients, BatchNorm, RunningSums, Statistics};
use crate::AxisExtents;
use crate::cuda_launches::{
    Divisor, Extents, Grids, SUM_THREADS, add, destination, launch, numbers, of_channels, partials, sources,
    threads,
};
use bytemuck::{Pod, Zeroable};
use tensor::cuda::{Cuda, Grid};
use tensor::{Format, Out, PoolGeometry, View, ViewMut};

sources!("batch_norm.cu");

/// Channels up to this size are read from cache the second time, and one block reads them as fast as several, if there
/// are enough channels to keep most of the GPU busy.
const CHANNEL_LEN: usize = 32 << 10;
const CHANNELS: usize = 128;

/// The grid of the CUDA kernels that do a whole channel per block, where they pay.
pub fn channel_grid(extents: &AxisExtents) -> Option<Grid> {
    let small = extents.inner > 1 && extents.per_index() <= CHANNEL_LEN;
    let alone = extents.per_index() <= SUM_THREADS as usize * 16;
    (small && (alone || extents.axis >= CHANNELS)).then(|| Grid::line(extents.axis as u32, SUM_THREADS))
}

/// `Pass` of `batch_norm.cu`: addresses, of which those of what is left out are 0.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Pass {
    extents: Extents,
    x: u64,
    gamma: u64,
    beta: u64,
    mean: u64,
    inv_std: u64,
    added: u64,
    y: u64,
    running: [u64; 3],
    dy: u64,
    y_seen: u64,
    dx: u64,
    passed: u64,
    gradients: [u64; 2],
    planes: u64,
    windows: Windows,
    epsilon: f32,
    fraction: f32,
    relu: i32,
    by_batch: i32,
    add: i32,
    add_gradients: [i32; 2],
    padding: u32,
}

/// `Windows` of `batch_norm.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Windows {
    image: [i32; 2],
    out: [i32; 2],
    pad: [i32; 2],
    rows: Divisor,
    columns: Divisor,
    count: u64,
    winners: u64,
}

/// The CUDA kernels of forward.
const FORWARD: [&str; 4] = ["forward_by_channel", "statistics", "normalise", "forward_pooled"];

impl Windows {
    fn new(pool: &PoolGeometry, winners: u64) -> Self {
        assert!(pool.h * pool.w < 1 << 30, "{pool:?} is more than batch normalisation on a GPU can take");
        let pair = |pair: [usize; 2]| pair.map(|extent| extent as i32);
        let [rows, columns] = [pool.h + pool.pad[0], pool.w + pool.pad[1]].map(|pixels| pixels.div_ceil(2));
        let count = pool.n * rows * columns;
        Self {
            image: pair([pool.h, pool.w]),
            out: pair([pool.out_h(), pool.out_w()]),
            pad: pair(pool.pad),
            rows: Divisor::new(rows, count),
            columns: Divisor::new(columns, count),
            count: count as u64,
            winners,
        }
    }
}

impl Pass {
    /// With what all passes read: where mean and inverse standard deviation are, too, and the winners of a pooling.
    fn new(norm: &BatchNorm<'_>, x: View<'_>, ([mean, inv_std], winners): ([u64; 2], u64)) -> Self {
        Self {
            windows: norm.pool.map_or_else(Windows::zeroed, |pool| Windows::new(&pool, winners)),
            extents: Extents::new(&norm.extents),
            x: x.numbers(),
            mean,
            inv_std,
            gamma: numbers(norm.affine.gamma),
            beta: numbers(norm.affine.beta),
            relu: i32::from(norm.relu),
            by_batch: i32::from(norm.statistics == Statistics::Batch),
            ..Self::zeroed()
        }
    }

    /// Launches one CUDA kernel that does all, with a whole channel per block or, where channels lie side by side, rows
    /// of them, where it may pool, too, or those that sum channels and the one that follows.
    ///
    /// # Safety
    /// The CUDA kernels are those of one direction, whose addresses are of views of the lengths that `extents` says.
    unsafe fn launch(
        mut self,
        cuda: &Cuda,
        (place, grids): (usize, Grids),
        extents: &AxisExtents,
        [by_channel, sums, map, pooled]: [&'static str; 4],
    ) {
        cuda.scratch(|mut scratch| {
            // The planes of all channels, two elements each, and partial sums behind them.
            self.planes = scratch.take(Format::F32, 2 * extents.axis).address::<f32>();
            let sum = |name| {
                let partials = partials(&scratch, extents, grids.sums);
                // SAFETY: `name(Pass pass, double* partials)`, and as the caller promises; the scratch memory has room
                // for the planes and the partial sums.
                unsafe { launch!(cuda, place, name, grids.sums, [self, partials]) };
            };
            match channel_grid(extents) {
                _ if extents.inner == 1 => sum(if self.windows.count == 0 { by_channel } else { pooled }),
                // SAFETY: as above; where a channel has one block, there are no partial sums.
                Some(grid) => unsafe { launch!(cuda, place, by_channel, grid, [self, 0u64]) },
                None => {
                    sum(sums);
                    // SAFETY: `map(Pass pass)`, and as the caller promises.
                    unsafe { launch!(cuda, place, map, grids.map, [self]) };
                }
            }
        });
    }
}

pub(super) fn forward(
    cuda: &Cuda,
    norm: &BatchNorm<'_>,
    epsilon: f32,
    (x, added): (View<'_>, Option<View<'_>>),
    y: ViewMut<'_>,
    (saved, winners): ([ViewMut<'_>; 2], Option<ViewMut<'_>>),
    running: RunningSums<'_>,
) {
    let extents = &norm.extents;
    let (place, grids) = of_channels(cuda, &[Some(x), added, Some(y.as_view())], extents);
    let saved = saved.map(|view| view.address::<f32>());
    let winners = winners.map_or(0, |winners| winners.address::<u8>());
    let pass = Pass {
        added: numbers(added),
        y: y.numbers(),
        running: [running.mean, running.variance, running.factor].map(|view| view.address::<f32>()),
        epsilon,
        fraction: running.moving_average_fraction,
        ..Pass::new(norm, x, (saved, winners))
    };
    match norm.statistics {
        Statistics::Batch if extents.is_empty() => {}
        Statistics::Batch => {
            // SAFETY: these are those of forward, and the contract has checked the lengths of all views above.
            unsafe { pass.launch(cuda, (place, grids), extents, FORWARD) };
        }
        Statistics::Running => {
            // SAFETY: `running_statistics(Pass pass)` and `normalise(Pass pass)`; the lengths as above.
            unsafe {
                launch!(cuda, place, "running_statistics", threads(extents.axis), [pass]);
                launch!(cuda, place, "normalise", grids.map, [pass]);
            }
        }
    }
}

/// Writes `y` by these statistics.
pub(super) fn normalise(
    cuda: &Cuda,
    norm: &BatchNorm<'_>,
    (x, added): (View<'_>, Option<View<'_>>),
    y: ViewMut<'_>,
    saved: [View<'_>; 2],
) {
    let (place, grids) = of_channels(cuda, &[Some(x), added, Some(y.as_view())], &norm.extents);
    let saved = (saved.map(|view| view.address::<f32>()), 0);
    let pass = Pass { added: numbers(added), y: y.numbers(), ..Pass::new(norm, x, saved) };
    // SAFETY: `normalise(Pass pass)`, or those of forward; the contract has checked the lengths of all views above.
    unsafe {
        match norm.pool {
            None => launch!(cuda, place, "normalise", grids.map, [pass]),
            Some(_) => pass.launch(cuda, (place, grids), &norm.extents, FORWARD),
        }
    }
}

pub(super) fn backward(
    cuda: &Cuda,
    norm: &BatchNorm<'_>,
    ([x, dy], y): ([View<'_>; 2], Option<View<'_>>),
    (saved, winners): ([View<'_>; 2], Option<View<'_>>),
    (Out { to: dx, accumulate }, passed): (Out<'_>, Option<ViewMut<'_>>),
    gradients: AffineGradients<'_>,
) {
    let [gamma, beta] = [&gradients.gamma, &gradients.beta].map(destination);
    let winners = winners.map_or(0, |winners| winners.address::<u8>());
    let pass = Pass {
        dy: dy.numbers(),
        y_seen: numbers(y),
        dx: dx.numbers(),
        passed: numbers(passed.as_ref().map(ViewMut::as_view)),
        gradients: [gamma.0, beta.0],
        add: add(accumulate),
        add_gradients: [gamma.1, beta.1],
        ..Pass::new(norm, x, (saved.map(|view| view.address::<f32>()), winners))
    };
    let blobs = [Some(x), Some(dy), y, passed.as_ref().map(ViewMut::as_view), Some(dx.as_view())];
    let kernels = of_channels(cuda, &blobs, &norm.extents);
    let names = ["backward_by_channel", "backward_sums", "backward_map", "backward_pooled"];
    // SAFETY: these are those of backward, and the contract has checked the lengths of all views above.
    unsafe { pass.launch(cuda, kernels, &norm.extents, names) };
}
