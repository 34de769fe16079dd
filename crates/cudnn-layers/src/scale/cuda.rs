//! Factors and biases on the GPU.

use super::{Affine, AffineGradients};
use crate::{
    AxisExtents,
    cuda_launches::{Extents, add, destination, launch, launch_sums, source, tiles},
};
use bytemuck::{Pod, Zeroable};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda},
};

source!("scale.cu");

pub(super) fn forward(
    cuda: &Cuda,
    extents: &AxisExtents,
    affine: &Affine<'_>,
    relu: bool,
    x: Option<View<'_>>,
    mut y: ViewMut<'_>,
) {
    let (grid, extents, relu) = (tiles(y.len()), Extents::new(extents), i32::from(relu));
    // SAFETY: `scale_forward(Extents extents, const float* gamma, const float* beta, int relu, const float* x, float* y)`;
    // the contract has checked the lengths.
    unsafe { launch!(cuda, "scale_forward", grid, [&extents, affine.gamma, affine.beta, relu, x, &mut y]) };
}

pub(super) fn backward(
    cuda: &Cuda,
    extents: &AxisExtents,
    gamma: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let (grid, extents) = (tiles(dx.len()), Extents::new(extents));
    // SAFETY: `scale_backward(Extents extents, const float* gamma, const float* dy, float* dx, int add)`; the contract has
    // checked the lengths.
    unsafe { launch!(cuda, "scale_backward", grid, [&extents, gamma, dy, &mut dx, add(accumulate)]) };
}

/// `Gradients` of `scale.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Gradients {
    addresses: [u64; 2],
    add: [i32; 2],
}

pub(super) fn backward_affine(
    cuda: &Cuda,
    extents: &AxisExtents,
    x: Option<View<'_>>,
    dy: View<'_>,
    mut gradients: AffineGradients<'_>,
) {
    let [gamma, beta] = [&mut gradients.gamma, &mut gradients.beta].map(destination);
    let gradients = Gradients { addresses: [gamma.0, beta.0], add: [gamma.1, beta.1] };
    let sums = if x.is_some() { "scale_backward_affine" } else { "bias_backward" };
    let device_extents = Extents::new(extents);
    let args = [Arg::from(&device_extents), x.into(), dy.into(), Arg::from(&gradients)];
    cuda.scratch(|scratch| {
        // SAFETY: `sums(Extents extents, const float* x, const float* dy, Gradients gradients, double* partials)` and
        // `scale_backward_finish(.., u32 parts)`, which add up two sums for each channel; the contract has checked the
        // lengths.
        unsafe { launch_sums(cuda, &SOURCE, [sums, "scale_backward_finish"], extents, scratch, &args) };
    });
}
