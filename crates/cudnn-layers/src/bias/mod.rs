//! A bias per channel: `y[n][c][..] += b[c]`, and its gradient `db[c] = sum over n and pixels of dy[n][c][..]`.
//!
//! The gradient with respect to the other operand is `dy` itself, so nothing is saved and in place is the only form.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use crate::AxisExtents;
use tensor::{Accumulate, Device, View, ViewMut};

/// Adds `b` (one element per channel, the axis of `extents`) to `y`; with `relu`, the sum is rectified on the way.
///
/// # Panics
/// If a length does not match `extents`.
pub fn forward_in_place(device: &Device, extents: &AxisExtents, b: View<'_>, relu: bool, mut y: ViewMut<'_>) {
    assert_eq!((b.len(), y.len()), (extents.axis, extents.len()), "lengths of bias and blob");
    match device {
        Device::Cpu(cpu) => cpu::forward_in_place(cpu, extents, b.host(), relu, y.host()),
        Device::Cuda(cuda) => cuda::forward_in_place(cuda, extents, b, relu, y),
    }
}

/// `db (+)= sums of dy`, in an order that does not depend on the number of threads.
///
/// # Panics
/// If a length does not match `extents`.
pub fn backward(
    device: &Device,
    extents: &AxisExtents,
    dy: View<'_>,
    mut db: ViewMut<'_>,
    accumulate: Accumulate,
) {
    assert_eq!((db.len(), dy.len()), (extents.axis, extents.len()), "lengths of bias and blob");
    match device {
        Device::Cpu(cpu) => cpu::backward(cpu, extents, dy.host(), db.host(), accumulate),
        Device::Cuda(cuda) => cuda::backward(cuda, extents, dy, db, accumulate),
    }
}
