//! Factors and biases on the GPU.

use super::{Affine, AffineGradients};
use crate::{
    AxisExtents,
    cuda_launches::{Extents, add, destination, launch_sums, launch_tiles},
};
use bytemuck::{Pod, Zeroable};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda, Source},
};

static SOURCE: Source =
    Source { name: "scale.cu", text: concat!(include_str!("../common.cuh"), include_str!("scale.cu")) };

pub(super) fn forward(
    cuda: &Cuda,
    extents: &AxisExtents,
    affine: &Affine<'_>,
    relu: bool,
    x: Option<View<'_>>,
    mut y: ViewMut<'_>,
) {
    let (len, extents, relu) = (y.len(), Extents::new(extents), i32::from(relu).into());
    let args = [extents.arg(), affine.gamma.into(), affine.beta.into(), relu, x.into(), (&mut y).into()];
    // SAFETY: `scale_forward(Extents extents, const float* gamma, const float* beta, int relu, const float* x, float* y)`;
    // the contract has checked the lengths.
    unsafe { launch_tiles(cuda, &SOURCE, "scale_forward", len, &args) };
}

pub(super) fn backward(
    cuda: &Cuda,
    extents: &AxisExtents,
    gamma: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let (len, extents) = (dx.len(), Extents::new(extents));
    let args = [extents.arg(), gamma.into(), dy.into(), (&mut dx).into(), add(accumulate).into()];
    // SAFETY: `scale_backward(Extents extents, const float* gamma, const float* dy, float* dx, int add)`; the contract has
    // checked the lengths.
    unsafe { launch_tiles(cuda, &SOURCE, "scale_backward", len, &args) };
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
    let args = [device_extents.arg(), x.into(), dy.into(), Arg::of(&gradients)];
    cuda.scratch(|scratch| {
        // SAFETY: `sums(Extents extents, const float* x, const float* dy, Gradients gradients, double* partials)` and
        // `scale_backward_finish(.., u32 parts)`, which add up two sums for each channel; the contract has checked the
        // lengths.
        unsafe { launch_sums(cuda, &SOURCE, [sums, "scale_backward_finish"], extents, scratch, &args) };
    });
}
