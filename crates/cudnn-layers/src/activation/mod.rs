//! Rectified linear units: `y = x` where `x >= 0`, `y = negative_slope * x` elsewhere.
//!
//! Backward needs the top data only (`dx = dy` where `y > 0`, `negative_slope * dy` elsewhere), which is why a ReLU may
//! overwrite its input. That holds for slopes that are not negative. A NaN passes through forward.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use tensor::{Accumulate, Device, View, ViewMut};

/// `y = relu(x)`.
///
/// # Panics
/// If lengths differ or the slope is negative, as in all functions of this module.
pub fn forward(device: &Device, negative_slope: f32, x: View<'_>, mut y: ViewMut<'_>) {
    check(negative_slope, x.len(), y.len());
    match device {
        Device::Cpu(cpu) => cpu::forward(cpu, negative_slope, x.host(), y.host()),
        Device::Cuda(cuda) => cuda::forward(cuda, negative_slope, Some(x), y),
    }
}

/// `xy = relu(xy)`.
pub fn forward_in_place(device: &Device, negative_slope: f32, mut xy: ViewMut<'_>) {
    check(negative_slope, xy.len(), xy.len());
    match device {
        Device::Cpu(cpu) => cpu::forward_in_place(cpu, negative_slope, xy.host()),
        Device::Cuda(cuda) => cuda::forward(cuda, negative_slope, None, xy),
    }
}

/// `dx (+)= dy` through the ReLU that produced `y`.
pub fn backward(
    device: &Device,
    negative_slope: f32,
    y: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    check(negative_slope, y.len(), dy.len());
    check(negative_slope, y.len(), dx.len());
    match device {
        Device::Cpu(cpu) => cpu::backward(cpu, negative_slope, [y.host(), dy.host()], dx.host(), accumulate),
        Device::Cuda(cuda) => cuda::backward(cuda, negative_slope, y, Some(dy), dx, accumulate),
    }
}

/// As [`backward`] where `dx` overwrites `dy`.
pub fn backward_in_place(device: &Device, negative_slope: f32, y: View<'_>, mut dxy: ViewMut<'_>) {
    check(negative_slope, y.len(), dxy.len());
    match device {
        Device::Cpu(cpu) => cpu::backward_in_place(cpu, negative_slope, y.host(), dxy.host()),
        Device::Cuda(cuda) => cuda::backward(cuda, negative_slope, y, None, dxy, Accumulate::Replace),
    }
}

fn check(negative_slope: f32, left: usize, right: usize) {
    assert_eq!(left, right, "operands of a ReLU have one length");
    assert!(negative_slope >= 0.0, "backward from the top needs a slope that is not negative");
}
