//! Local response normalisation on the GPU.

use super::Neighbourhood;
use crate::cuda_launches::{Extents, add, launch, of_type, sources, threads};
use bytemuck::{Pod, Zeroable};
use tensor::cuda::{Cuda, Grid};
use tensor::{Out, View, ViewMut};

sources!("lrn.cu");

/// Fewest channels of a segment: every segment reads four channels of its neighbours once more.
const SEGMENT: usize = 16;
/// Threads per multiprocessor that keep memory busy: two times as many as run at once.
const WANTED_THREADS: usize = 4096;

pub(super) fn forward(cuda: &Cuda, near: &Neighbourhood, x: View<'_>, y: ViewMut<'_>, scale: ViewMut<'_>) {
    let (function, grid, lrn) = work(cuda, near, ["lrn_forward_5", "lrn_forward"]);
    let (extents, place) = (Extents::new(&near.extents), of_type(&[Some(x), Some(y.as_view())]));
    let (from, to, scale) = (x.numbers(), y.numbers(), &mut { scale });
    // SAFETY: `(Lrn lrn, Extents e, const real* x, real* y, float* scale)`; the contract has checked the lengths.
    unsafe { launch!(cuda, place, function, grid, [&lrn, &extents, from, to, scale]) };
}

pub(super) fn backward(cuda: &Cuda, near: &Neighbourhood, [x, scale, dy]: [View<'_>; 3], dx: Out<'_>) {
    let (function, grid, lrn) = work(cuda, near, ["lrn_backward_5", "lrn_backward"]);
    let (extents, add) = (Extents::new(&near.extents), add(dx.accumulate));
    let place = of_type(&[Some(x), Some(dy), Some(dx.to.as_view())]);
    let (from, gradient, to) = (x.numbers(), dy.numbers(), dx.to.numbers());
    // SAFETY: `(Lrn lrn, Extents e, const real* x, const float* scale, const real* dy, real* dx, int add)`; the
    // contract has checked the lengths.
    unsafe { launch!(cuda, place, function, grid, [&lrn, &extents, from, scale, gradient, to, add]) };
}

/// The CUDA kernel for five channels, or that for any neighbourhood, with its grid and constants.
fn work(
    cuda: &Cuda,
    near: &Neighbourhood,
    [five, any]: [&'static str; 2],
) -> (&'static str, Grid, Constants) {
    let &Neighbourhood { extents, half, constant, beta, factors } = near;
    let half = half.map(|half| half as i32);
    let mut constants = Constants { constant, beta, factors, half, segments: 1 };
    // Where channels lie side by side, threads that walk along them would read and write far from each other.
    if half != [2, 0] || extents.inner == 1 || extents.is_empty() {
        return (any, threads(extents.len()), constants);
    }
    // Channels are cut into segments where there are not enough pixels for a thread each.
    let wanted = (WANTED_THREADS * cuda.multiprocessors() as usize).div_ceil(extents.per_index());
    constants.segments = wanted.min(extents.axis / SEGMENT).clamp(1, 256) as u32;
    let mut grid = threads(extents.per_index());
    grid.blocks[0] *= constants.segments;
    (five, grid, constants)
}

/// `Lrn` of `lrn.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Constants {
    constant: f32,
    beta: f32,
    factors: [f32; 2],
    half: [i32; 2],
    segments: u32,
}
