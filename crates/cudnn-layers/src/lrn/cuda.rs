//! Local response normalisation on the GPU.

use super::Neighbourhood;
use crate::cuda_launches::{Divisor, Extents, add, launch, of_channels, sources, threads};
use bytemuck::{Pod, Zeroable};
use tensor::cuda::Cuda;
use tensor::{Out, View, ViewMut};

sources!("lrn.cu");

pub(super) fn forward(cuda: &Cuda, near: &Neighbourhood, x: View<'_>, y: ViewMut<'_>) {
    let place = of_channels(cuda, &[Some(x), Some(y.as_view())], &near.extents).0;
    let ((lrn, runs), extents) = (Constants::new(near, x), Extents::new(&near.extents));
    let (function, count) = if near.is_five { ("lrn_forward_5", runs) } else { ("lrn_forward", x.len()) };
    let (from, to) = (x.numbers(), y.numbers());
    // SAFETY: `(Lrn lrn, Extents e, const real* x, real* y)`; the contract has checked the lengths.
    unsafe { launch!(cuda, place, function, threads(count), [lrn, extents, from, to]) };
}

pub(super) fn backward(
    cuda: &Cuda,
    near: &Neighbourhood,
    [x, dy]: [View<'_>; 2],
    dx: Out<'_>,
    scale: Option<ViewMut<'_>>,
) {
    let place = of_channels(cuda, &[Some(x), Some(dy), Some(dx.to.as_view())], &near.extents).0;
    let ((lrn, runs), extents) = (Constants::new(near, x), Extents::new(&near.extents));
    let add = add(dx.accumulate);
    let (from, gradient, to) = (x.numbers(), dy.numbers(), dx.to.numbers());
    let Some(scale) = scale else {
        let grid = threads(runs);
        // SAFETY: `(Lrn lrn, Extents e, const real* x, const real* dy, real* dx, int add)`; the contract has checked the
        // lengths.
        unsafe { launch!(cuda, place, "lrn_backward_5", grid, [lrn, extents, from, gradient, to, add]) };
        return;
    };
    let (grid, scale) = (threads(x.len()), scale.address::<f32>());
    // SAFETY: `(Lrn lrn, Extents e, const real* x, float* scale)`, and those with `dy`, `dx` and `add`; the contract has
    // checked the lengths.
    unsafe {
        launch!(cuda, place, "lrn_scale", grid, [lrn, extents, from, scale]);
        launch!(cuda, place, "lrn_backward", grid, [lrn, extents, from, scale, gradient, to, add]);
    }
}

/// `Lrn` of `lrn.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Constants {
    /// Of a pixel's channels.
    runs: Divisor,
    constant: f32,
    beta: f32,
    factors: [f32; 2],
    half: [i32; 2],
}

impl Constants {
    /// These, and the number of runs of all pixels.
    fn new(near: &Neighbourhood, x: View<'_>) -> (Self, usize) {
        let &Neighbourhood { extents, half, constant, beta, factors, .. } = near;
        // `RUN` of `lrn.cu`.
        let run = if extents.inner == 1 { 16 / x.format().dtype.bytes() } else { 4 };
        let of_pixel = extents.axis.div_ceil(run).max(1);
        let count = extents.per_index() * of_pixel;
        let half = half.map(|half| half as i32);
        (Self { runs: Divisor::new(of_pixel, count), constant, beta, factors, half }, count)
    }
}
