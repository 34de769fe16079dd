//! ReLU on the GPU.

use crate::cuda_launches::{add, launch_tiles};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Cuda, Source},
};

static SOURCE: Source = Source {
    name: "activation.cu",
    text: concat!(include_str!("../common.cuh"), include_str!("activation.cu")),
};

/// In place without an `x`.
pub(super) fn forward(cuda: &Cuda, slope: f32, x: Option<View<'_>>, mut y: ViewMut<'_>) {
    let len = y.len();
    let args = [slope.into(), x.into(), (&mut y).into(), len.into()];
    // SAFETY: `relu_forward(float slope, const float* x, float* y, u64 len)`; the contract has checked the lengths.
    unsafe { launch_tiles(cuda, &SOURCE, "relu_forward", len, &args) };
}

/// In place without a `dy`.
pub(super) fn backward(
    cuda: &Cuda,
    slope: f32,
    y: View<'_>,
    dy: Option<View<'_>>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let len = dx.len();
    let args = [slope.into(), y.into(), dy.into(), (&mut dx).into(), add(accumulate).into(), len.into()];
    // SAFETY: `relu_backward(float slope, const float* y, const float* dy, float* dx, int add, u64 len)`; the contract has
    // checked the lengths.
    unsafe { launch_tiles(cuda, &SOURCE, "relu_backward", len, &args) };
}
