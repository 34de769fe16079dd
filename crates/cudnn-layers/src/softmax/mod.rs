//! Softmax over one axis, and what goes with it: the logistic loss ([`loss`]) and the accuracy ([`accuracy`]).
//!
//! `y = exp(x - max) / sum of exp(x - max)` along the axis of [`AxisExtents`]. Backward needs the top data:
//! `dx = y * (dy - sum of dy * y)`.

pub mod accuracy;
mod cpu;
mod cuda;
pub mod labels;
pub mod loss;
#[cfg(test)]
mod tests;

pub use labels::LabelError;
pub use loss::Normalization;

use crate::AxisExtents;
use tensor::{Accumulate, Device, View, ViewMut};

/// `y = softmax(x)`.
///
/// # Panics
/// If a length does not match `extents`.
pub fn forward(device: &Device, extents: &AxisExtents, x: View<'_>, mut y: ViewMut<'_>) {
    assert_eq!((x.len(), y.len()), (extents.len(), extents.len()), "lengths of x and y");
    match device {
        Device::Cpu(cpu) => cpu::forward(cpu, extents, x.host(), y.host()),
        Device::Cuda(cuda) => cuda::forward(cuda, extents, x, y),
    }
}

/// `dx (+)= ...` (see the module).
///
/// # Panics
/// If a length does not match `extents`.
pub fn backward(
    device: &Device,
    extents: &AxisExtents,
    y: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let len = extents.len();
    assert_eq!((y.len(), dy.len(), dx.len()), (len, len, len), "lengths of y, dy and dx");
    match device {
        Device::Cpu(cpu) => cpu::backward(cpu, extents, [y.host(), dy.host()], dx.host(), accumulate),
        Device::Cuda(cuda) => cuda::backward(cuda, extents, y, dy, dx, accumulate),
    }
}
