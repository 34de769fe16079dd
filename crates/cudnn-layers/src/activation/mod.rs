//! Rectified linear units: `y = x` where `x >= 0`, `y = negative_slope * x` elsewhere.
//!
//! Backward needs the top data only (`dx = dy` where `y > 0`, `negative_slope * dy` elsewhere), which is why a ReLU may
//! overwrite its input. That holds for slopes that are not negative. A NaN passes through forward.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use tensor::{Accumulate, Device, View, ViewMut};

/// `y = relu(x)`; without an `x`, `y = relu(y)`.
///
/// # Panics
/// If lengths differ or the slope is negative, as in all functions of this module.
pub fn forward(device: &Device, negative_slope: f32, x: Option<View<'_>>, mut y: ViewMut<'_>) {
    check(negative_slope, &[x], y.len());
    match device {
        Device::Cpu(cpu) => cpu::forward(cpu, negative_slope, x.map(|x| x.host()), y.host()),
        Device::Cuda(cuda) => cuda::forward(cuda, negative_slope, x, y),
    }
}

/// `dx (+)= dy` through the ReLU that produced `y`; without a `dy`, `dx` holds it before and is overwritten.
pub fn backward(
    device: &Device,
    negative_slope: f32,
    y: View<'_>,
    dy: Option<View<'_>>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    check(negative_slope, &[Some(y), dy], dx.len());
    match device {
        Device::Cpu(cpu) => {
            cpu::backward(cpu, negative_slope, y.host(), dy.map(|dy| dy.host()), dx.host(), accumulate);
        }
        Device::Cuda(cuda) => cuda::backward(cuda, negative_slope, y, dy, dx, accumulate),
    }
}

fn check(negative_slope: f32, inputs: &[Option<View<'_>>], len: usize) {
    assert!(inputs.iter().flatten().all(|input| input.len() == len), "operands of a ReLU have one length");
    assert!(negative_slope >= 0.0, "backward from the top needs a slope that is not negative");
}
