//! Functions of one element on the GPU.

use super::Activation;
use crate::cuda_launches::{add, launch, source, tiles};
use tensor::{Accumulate, View, ViewMut, cuda::Cuda};

source!("activation.cu");

/// The kernels of a function, forward and backward, and its numbers: `Numbers` of `activation.cu`.
fn kernels(f: Activation) -> ([&'static str; 2], [f32; 3]) {
    match f {
        Activation::Relu { slope } => (["relu_forward", "relu_backward"], [slope, 0.0, 0.0]),
        Activation::Elu { alpha } => (["elu_forward", "elu_backward"], [alpha, 0.0, 0.0]),
        Activation::Sigmoid => (["sigmoid_forward", "sigmoid_backward"], [0.0; 3]),
        Activation::TanH => (["tanh_forward", "tanh_backward"], [0.0; 3]),
        Activation::Power { power, scale, shift } => {
            (["power_forward", "power_backward"], [power, scale, shift])
        }
        Activation::Below => (["below_forward", "below_backward"], [0.0; 3]),
    }
}

/// In place without an `x`.
pub(super) fn forward(cuda: &Cuda, f: Activation, x: Option<View<'_>>, mut y: ViewMut<'_>) {
    let (len, ([forward, _], numbers)) = (y.len(), kernels(f));
    // SAFETY: each is `(Numbers numbers, const float* x, float* y, u64 len)`; the contract has checked the lengths.
    unsafe { launch!(cuda, forward, tiles(len), [&numbers, x, &mut y, len]) };
}

/// In place without a `dy`.
pub(super) fn backward(
    cuda: &Cuda,
    f: Activation,
    seen: View<'_>,
    dy: Option<View<'_>>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let (len, ([_, backward], numbers)) = (dx.len(), kernels(f));
    // SAFETY: each is `(Numbers numbers, const float* seen, const float* dy, float* dx, int add, u64 len)`; the contract has
    // checked the lengths.
    unsafe { launch!(cuda, backward, tiles(len), [&numbers, seen, dy, &mut dx, add(accumulate), len]) };
}
