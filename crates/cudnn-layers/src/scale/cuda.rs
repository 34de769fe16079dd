//! Factors and biases on the GPU.

use super::{Affine, AffineGradients};
use crate::AxisExtents;
use crate::cuda_launches::{Extents, add, destination, launch, numbers, of_channels, partials, sources};
use tensor::{Out, View, cuda::Cuda};

sources!("scale.cu");

pub(super) fn forward(
    cuda: &Cuda,
    extents: &AxisExtents,
    affine: &Affine<'_>,
    relu: bool,
    x: Option<View<'_>>,
    Out { to: y, accumulate }: Out<'_>,
) {
    let (place, grids) = of_channels(cuda, &[x, Some(y.as_view())], extents);
    let (extents, relu, add) = (Extents::new(extents), i32::from(relu), add(accumulate));
    let (from, to, Affine { gamma, beta }) = (numbers(x), y.numbers(), *affine);
    let [gamma, beta] = [gamma, beta].map(|view| view.map_or(0, |view| view.address::<f32>()));
    // SAFETY: `scale(Extents extents, const float* gamma, const float* beta, int relu, const real* x, real* y, int add)`;
    // the contract has checked the lengths, and that nothing is added in place.
    unsafe { launch!(cuda, place, "scale", grids.map, [extents, gamma, beta, relu, from, to, add]) };
}

pub(super) fn backward_affine(
    cuda: &Cuda,
    extents: &AxisExtents,
    x: View<'_>,
    dy: View<'_>,
    gradients: AffineGradients<'_>,
) {
    let [(gamma, add_gamma), (beta, add_beta)] = [&gradients.gamma, &gradients.beta].map(destination);
    let (place, grids) = of_channels(cuda, &[Some(x), Some(dy)], extents);
    let (e, x, dy) = (Extents::new(extents), x.numbers(), dy.numbers());
    cuda.scratch(|scratch| {
        let (sums, grid) = ("scale_backward_affine", grids.sums);
        let partials = partials(&scratch, extents, grid);
        // SAFETY: `scale_backward_affine(Extents extents, const real* x, const real* dy, float* gamma, float* beta, int
        // add_gamma, int add_beta, double* partials)`, which adds up two sums for each channel, where gamma and beta
        // may be null; the contract has checked the lengths, and the partial sums have their places.
        unsafe { launch!(cuda, place, sums, grid, [e, x, dy, gamma, beta, add_gamma, add_beta, partials]) };
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
    let (place, grids) = of_channels(cuda, &[y, Some(dy)], extents);
    let (e, y, dy, passed) = (Extents::new(extents), numbers(y), dy.numbers(), passed.unwrap_or(0));
    let (db, add) = (db.to.address::<f32>(), add(db.accumulate));
    cuda.scratch(|scratch| {
        let partials = partials(&scratch, extents, grids.sums);
        // SAFETY: `bias_backward(Extents extents, const real* y, const real* dy, real* passed, float* db, int add,
        // double* partials)`, which adds up one sum for each channel, where y and passed may be null; the contract has
        // checked the lengths, and hands over what is exclusively its own as `passed`, and the partial sums have their
        // places.
        unsafe { launch!(cuda, place, "bias_backward", grids.sums, [e, y, dy, passed, db, add, partials]) };
    });
}
