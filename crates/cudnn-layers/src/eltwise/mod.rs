//! Element-wise combinations of several blobs of one shape: sum with coefficients, product, maximum.
//!
//! | operation | forward | backward, for the bottom `i` | backward needs |
//! | --- | --- | --- | --- |
//! | sum | `y = sum of a[j] x[j]` | `dx = a[i] dy` | nothing |
//! | product | `y = product of x[j]` | `dx = dy * product of the other x[j]` | all bottoms |
//! | maximum | `y = max of x[j]` | `dx = dy` where `i` won, else 0 | all bottoms |
//!
//! The product's gradient multiplies the other factors instead of dividing `y` by `x[i]`, which is Caffe's
//! `stable_prod_grad` and right for zeros. As in Caffe, of two equal first bottoms the second wins the maximum, and a later
//! one wins only by being larger.
//!
//! A GPU combines at most 64 inputs other than by a sum of two; more of them panic there.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use tensor::{Accumulate, Device, View, ViewMut};

/// `y = sum of coefficients[j] * inputs[j]`; with `relu`, the sum is rectified on the way.
///
/// # Panics
/// If there is no input, the numbers of inputs and coefficients differ, or lengths differ.
pub fn sum(device: &Device, inputs: &[View<'_>], coefficients: &[f32], relu: bool, mut y: ViewMut<'_>) {
    check(inputs, y.len());
    assert_eq!(inputs.len(), coefficients.len(), "one coefficient per input");
    match device {
        Device::Cpu(cpu) => cpu::sum(cpu, &host(inputs), coefficients, relu, y.host()),
        Device::Cuda(cuda) => cuda::sum(cuda, inputs, coefficients, relu, y),
    }
}

/// `dx (+)= coefficient * dy`.
///
/// # Panics
/// If lengths differ.
pub fn backward_sum(
    device: &Device,
    coefficient: f32,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    check(&[dy], dx.len());
    match device {
        Device::Cpu(cpu) => cpu::backward_sum(cpu, coefficient, dy.host(), dx.host(), accumulate),
        Device::Cuda(cuda) => cuda::backward_sum(cuda, coefficient, dy, dx, accumulate),
    }
}

/// `y = product of inputs`.
///
/// # Panics
/// If there is no input or lengths differ.
pub fn product(device: &Device, inputs: &[View<'_>], mut y: ViewMut<'_>) {
    check(inputs, y.len());
    match device {
        Device::Cpu(cpu) => cpu::product(cpu, &host(inputs), y.host()),
        Device::Cuda(cuda) => cuda::product(cuda, inputs, y),
    }
}

/// `dx (+)= dy * product of all inputs but the one numbered `index`.
///
/// # Panics
/// If there is no such input or lengths differ.
pub fn backward_product(
    device: &Device,
    inputs: &[View<'_>],
    index: usize,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    check(inputs, dx.len());
    check(&[dy], dx.len());
    assert!(index < inputs.len(), "input {index} of {}", inputs.len());
    match device {
        Device::Cpu(cpu) => {
            cpu::backward_product(cpu, &host(inputs), index, dy.host(), dx.host(), accumulate)
        }
        Device::Cuda(cuda) => cuda::backward_product(cuda, inputs, index, dy, dx, accumulate),
    }
}

/// `y = maximum of inputs`.
///
/// # Panics
/// If there is no input or lengths differ.
pub fn maximum(device: &Device, inputs: &[View<'_>], mut y: ViewMut<'_>) {
    check(inputs, y.len());
    match device {
        Device::Cpu(cpu) => cpu::maximum(cpu, &host(inputs), y.host()),
        Device::Cuda(cuda) => cuda::maximum(cuda, inputs, y),
    }
}

/// `dx (+)= dy` where the input numbered `index` won the maximum, 0 elsewhere.
///
/// # Panics
/// If there is no such input or lengths differ.
pub fn backward_maximum(
    device: &Device,
    inputs: &[View<'_>],
    index: usize,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    check(inputs, dx.len());
    check(&[dy], dx.len());
    assert!(index < inputs.len(), "input {index} of {}", inputs.len());
    match device {
        Device::Cpu(cpu) => {
            cpu::backward_maximum(cpu, &host(inputs), index, dy.host(), dx.host(), accumulate)
        }
        Device::Cuda(cuda) => cuda::backward_maximum(cuda, inputs, index, dy, dx, accumulate),
    }
}

fn host<'a>(inputs: &[View<'a>]) -> Vec<&'a [f32]> {
    inputs.iter().map(View::host).collect()
}

fn check(inputs: &[View<'_>], len: usize) {
    assert!(!inputs.is_empty(), "an element-wise operation has inputs");
    assert!(inputs.iter().all(|input| input.len() == len), "inputs and output have one length");
}
