//! Factors and biases on the GPU.

use super::{Affine, AffineGradients};
use crate::AxisExtents;
use crate::cuda_launches::{Extents, add, destination, launch, launch_sums, numbers, of_channels, sources};
use tensor::cuda::{Arg, Cuda};
use tensor::{Accumulate, Out, View};

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
    let (extents, relu) = (Extents::new(extents), i32::from(relu));
    let (from, to, Affine { gamma, beta }) = (numbers(x), y.numbers(), *affine);
    let function = if accumulate == Accumulate::Add { "scale_added" } else { "scale" };
    // SAFETY: `function(Extents extents, const float* gamma, const float* beta, int relu, const real* x, real* y)`; the
    // contract has checked the lengths, and that nothing is added in place.
    unsafe { launch!(cuda, place, function, grids.map, [&extents, gamma, beta, relu, from, to]) };
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
    let (place, grids) = of_channels(cuda, &[Some(x), Some(dy)], extents);
    cuda.scratch(|scratch| {
        // SAFETY: `scale_backward_affine(Extents extents, const real* x, const real* dy, float* gamma, float* beta, int
        // add_gamma, int add_beta, double* partials)`, which adds up two sums for each channel, where gamma and beta
        // may be null; the contract has checked the lengths.
        unsafe {
            launch_sums(cuda, &SOURCES[place], "scale_backward_affine", (extents, grids.sums), scratch, &args)
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
    let ((place, grids), device_extents) =
        (of_channels(cuda, &[y, Some(dy)], extents), Extents::new(extents));
    let addresses = [numbers(y), dy.numbers(), passed.unwrap_or(0), db.to.address::<f32>()].map(Arg::from);
    let args = [&[Arg::from(&device_extents)], &addresses[..], &[Arg::from(add(db.accumulate))]].concat();
    cuda.scratch(|scratch| {
        // SAFETY: `bias_backward(Extents extents, const real* y, const real* dy, real* passed, float* db, int add,
        // double* partials)`, which adds up one sum for each channel, where y and passed may be null; the contract has
        // checked the lengths, and hands over what is exclusively its own as `passed`.
        unsafe { launch_sums(cuda, &SOURCES[place], "bias_backward", (extents, grids.sums), scratch, &args) };
    });
}
