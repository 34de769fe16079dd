//! Local response normalisation on the GPU.

use super::Neighbourhood;
use crate::cuda_launches::{Extents, THREADS, add, source};
use bytemuck::{Pod, Zeroable};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda, Grid},
};

source!("lrn.cu");

/// Fewest channels of a segment: every segment reads four channels of its neighbours once more.
const SEGMENT: usize = 16;
/// Threads per multiprocessor that keep memory busy: two times as many as run at once.
const WANTED_THREADS: usize = 4096;

pub(super) fn forward(
    cuda: &Cuda,
    near: &Neighbourhood,
    x: View<'_>,
    mut y: ViewMut<'_>,
    mut scale: ViewMut<'_>,
) {
    let operands = [Arg::from(x), Arg::from(&mut y), Arg::from(&mut scale)];
    // SAFETY: `(Lrn lrn, Extents e, const float* x, float* y, float* scale)` for both; the contract has checked the lengths.
    unsafe { launch(cuda, near, ["lrn_forward_5", "lrn_forward"], &operands) };
}

pub(super) fn backward(
    cuda: &Cuda,
    near: &Neighbourhood,
    x: View<'_>,
    scale: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let operands = [x.into(), scale.into(), dy.into(), Arg::from(&mut dx), add(accumulate).into()];
    // SAFETY: `(Lrn lrn, Extents e, const float* x, const float* scale, const float* dy, float* dx, int add)` for both; the
    // contract has checked the lengths.
    unsafe { launch(cuda, near, ["lrn_backward_5", "lrn_backward"], &operands) };
}

/// Launches the CUDA kernel for five channels and a beta of 0.75, or that for any neighbourhood.
///
/// # Safety
/// The CUDA kernels' parameters are the constants, the extents and `operands`, which have the elements of the extents.
unsafe fn launch(cuda: &Cuda, near: &Neighbourhood, [five, any]: [&'static str; 2], operands: &[Arg<'_>]) {
    let extents = &near.extents;
    if extents.is_empty() {
        return;
    }
    let &Neighbourhood { half, constant, beta, factors, .. } = near;
    let half = half.map(|half| half as i32);
    let mut constants = Constants { constant, beta, factors, half, segments: 1 };
    let (function, threads) = if half == [2, 0] && beta == 0.75 {
        // Channels are cut into segments where there are not enough pixels for a thread each.
        let wanted = (WANTED_THREADS * cuda.multiprocessors() as usize).div_ceil(extents.per_index());
        constants.segments = wanted.min(extents.axis / SEGMENT).clamp(1, 256) as u32;
        (five, extents.per_index())
    } else {
        (any, extents.len())
    };
    let blocks = u32::try_from(threads.div_ceil(THREADS as usize)).expect("no GPU has 4 TiB of memory");
    let grid = Grid::line(blocks * constants.segments, THREADS);
    let extents = Extents::new(extents);
    let args = [[Arg::from(&constants), Arg::from(&extents)].as_slice(), operands].concat();
    // SAFETY: the caller's promise. There are `segments` blocks for each run of pixels, or a thread for each element.
    unsafe { cuda.launch(&SOURCE, function, grid, &args) };
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
