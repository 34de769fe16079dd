//! ReLU on the GPU.

use crate::cuda_launches::{add, launch, source, tiles};
use tensor::{Accumulate, View, ViewMut, cuda::Cuda};

source!("activation.cu");

/// In place without an `x`.
pub(super) fn forward(cuda: &Cuda, slope: f32, x: Option<View<'_>>, mut y: ViewMut<'_>) {
    let len = y.len();
    // SAFETY: `relu_forward(float slope, const float* x, float* y, u64 len)`; the contract has checked the lengths.
    unsafe { launch!(cuda, "relu_forward", tiles(len), [slope, x, &mut y, len]) };
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
    // SAFETY: `relu_backward(float slope, const float* y, const float* dy, float* dx, int add, u64 len)`; the contract has
    // checked the lengths.
    unsafe { launch!(cuda, "relu_backward", tiles(len), [slope, y, dy, &mut dx, add(accumulate), len]) };
}
