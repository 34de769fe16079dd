//! ReLU on the GPU.

use crate::cuda_launches::{add, launch, numbers, of_type, sources, tiles};
use tensor::{Accumulate, View, ViewMut, cuda::Cuda};

sources!("activation.cu");

/// In place without an `x`.
pub(super) fn forward(cuda: &Cuda, slope: f32, x: Option<View<'_>>, y: ViewMut<'_>) {
    let (len, place) = (y.len(), of_type(&[x, Some(y.as_view())]));
    // SAFETY: `relu_forward(float slope, const real* x, real* y, u64 len)`; the contract has checked the lengths.
    unsafe { launch!(cuda, place, "relu_forward", tiles(len), [slope, numbers(x), y.numbers(), len]) };
}

/// In place without a `dy`.
pub(super) fn backward(
    cuda: &Cuda,
    slope: f32,
    y: View<'_>,
    dy: Option<View<'_>>,
    dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let (len, place, add) = (dx.len(), of_type(&[Some(y), dy, Some(dx.as_view())]), add(accumulate));
    let [y, dy, dx] = [y.numbers(), numbers(dy), dx.numbers()];
    // SAFETY: `relu_backward(float slope, const real* y, const real* dy, real* dx, int add, u64 len)`; the contract has
    // checked the lengths.
    unsafe { launch!(cuda, place, "relu_backward", tiles(len), [slope, y, dy, dx, add, len]) };
}
