//! Factors and biases on the GPU.

use super::{Affine, AffineGradients};
use crate::AxisExtents;
use crate::cuda_launches::{
    Extents, add, destination, launch, launch_sums, map_grid, numbers, of_channels, sources,
};
use tensor::cuda::{Arg, Cuda};
use tensor::{Out, View, ViewMut};

sources!("scale.cu");

pub(super) fn forward(
    cuda: &Cuda,
    extents: &AxisExtents,
    affine: &Affine<'_>,
    relu: bool,
    x: Option<View<'_>>,
    y: ViewMut<'_>,
) {
    let (place, rows) = of_channels(cuda, &[x, Some(y.as_view())], extents);
    let (grid, extents, relu) = (map_grid(extents, rows), Extents::new(extents), i32::from(relu));
    let (from, to) = (numbers(x), y.numbers());
    let Affine { gamma, beta } = *affine;
    // SAFETY: `scale_forward(Extents extents, const float* gamma, const float* beta, int relu, const real* x, real*
    // y)`; the contract has checked the lengths.
    unsafe { launch!(cuda, place, "scale_forward", grid, [&extents, gamma, beta, relu, from, to]) };
}

pub(super) fn backward(cuda: &Cuda, extents: &AxisExtents, gamma: View<'_>, dy: View<'_>, dx: Out<'_>) {
    let (place, rows) = of_channels(cuda, &[Some(dy), Some(dx.to.as_view())], extents);
    let grid = map_grid(extents, rows);
    let (extents, from, to, add) = (Extents::new(extents), dy.numbers(), dx.to.numbers(), add(dx.accumulate));
    // SAFETY: `scale_backward(Extents extents, const float* gamma, const real* dy, real* dx, int add)`; the contract
    // has checked the lengths.
    unsafe { launch!(cuda, place, "scale_backward", grid, [&extents, gamma, from, to, add]) };
}

pub(super) fn backward_affine(
    cuda: &Cuda,
    extents: &AxisExtents,
    x: View<'_>,
    dy: View<'_>,
    gradients: AffineGradients<'_>,
) {
    let [gamma, beta] = [&gradients.gamma, &gradients.beta].map(destination);
    let device_extents = Extents::new(extents);
    let addresses = [x.numbers(), dy.numbers(), gamma.0, beta.0].map(Arg::from);
    let args = [&[Arg::from(&device_extents)], &addresses[..], &[gamma.1, beta.1].map(Arg::from)].concat();
    let (place, rows) = of_channels(cuda, &[Some(x), Some(dy)], extents);
    cuda.scratch(|scratch| {
        // SAFETY: `scale_backward_affine(Extents extents, const real* x, const real* dy, float* gamma, float* beta, int
        // add_gamma, int add_beta, double* partials)`, which adds up two sums for each channel, where gamma and beta
        // may be null; the contract has checked the lengths.
        unsafe {
            launch_sums(cuda, &SOURCES[place], "scale_backward_affine", (extents, rows), scratch, &args)
        };
    });
}

/// What `y` lets pass of `dy` also goes to the address `passed`.
pub(crate) fn backward_bias(
    cuda: &Cuda,
    extents: &AxisExtents,
    (y, passed): (Option<View<'_>>, Option<u64>),
    dy: View<'_>,
    db: Out<'_>,
) {
    let ((place, rows), device_extents) = (of_channels(cuda, &[y, Some(dy)], extents), Extents::new(extents));
    let addresses = [numbers(y), dy.numbers(), passed.unwrap_or(0), db.to.address::<f32>()].map(Arg::from);
    let args = [&[Arg::from(&device_extents)], &addresses[..], &[Arg::from(add(db.accumulate))]].concat();
    cuda.scratch(|scratch| {
        // SAFETY: `bias_backward(Extents extents, const real* y, const real* dy, real* passed, float* db, int add,
        // double* partials)`, which adds up one sum for each channel, where y and passed may be null; the contract has
        // checked the lengths, and hands over what is exclusively its own as `passed`.
        unsafe { launch_sums(cuda, &SOURCES[place], "bias_backward", (extents, rows), scratch, &args) };
    });
}
