//! Functions of one element on the GPU.

use super::Activation;
use crate::cuda_launches::{add, launch, numbers, of_type, sources, tiles};
use tensor::{Out, View, ViewMut, cuda::Cuda};

sources!("activation.cu");

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
pub(super) fn forward(cuda: &Cuda, f: Activation, x: Option<View<'_>>, y: ViewMut<'_>) {
    let (len, ([forward, _], constants)) = (y.len(), kernels(f));
    let (place, from, to) = (of_type(&[x, Some(y.as_view())]), numbers(x), y.numbers());
    // SAFETY: each is `(Numbers numbers, const real* x, real* y, u64 len)`; the contract has checked the lengths.
    unsafe { launch!(cuda, place, forward, tiles(len), [constants, from, to, len]) };
}

/// In place without a `dy`.
pub(super) fn backward(cuda: &Cuda, f: Activation, seen: View<'_>, dy: Option<View<'_>>, dx: Out<'_>) {
    let (len, ([_, backward], constants), add) = (dx.to.len(), kernels(f), add(dx.accumulate));
    let place = of_type(&[Some(seen), dy, Some(dx.to.as_view())]);
    let (seen, from, to) = (seen.numbers(), numbers(dy), dx.to.numbers());
    // SAFETY: each is `(Numbers numbers, const real* seen, const real* dy, real* dx, int add, u64 len)`; the contract
    // has checked the lengths.
    unsafe { launch!(cuda, place, backward, tiles(len), [constants, seen, from, to, add, len]) };
}
