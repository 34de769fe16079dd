//! A bias per channel: `y[n][c][..] += b[c]`, and its gradient `db[c] = sum over n and pixels of dy[n][c][..]`. It is
//! [`scale`] without a factor.
//!
//! The gradient with respect to the other operand is `dy` itself, so nothing is saved and in place is the only form.

#[cfg(test)]
mod tests;

use crate::{
    AxisExtents,
    scale::{self, Affine, AffineGradients},
};
use tensor::{Device, Out, View, ViewMut};

/// Adds `b` (one element per channel, the axis of `extents`) to `y`; with `relu`, the sum is rectified on the way.
///
/// # Panics
/// If a length does not match `extents`.
pub fn forward_in_place(device: &Device, extents: &AxisExtents, b: View<'_>, relu: bool, y: ViewMut<'_>) {
    scale::forward(device, extents, Affine { gamma: None, beta: Some(b) }, relu, None, y);
}

/// `db (+)= sums of dy`.
///
/// # Panics
/// If a length does not match `extents`.
pub fn backward(device: &Device, extents: &AxisExtents, dy: View<'_>, db: Out<'_>) {
    scale::backward_affine(device, extents, None, dy, AffineGradients { gamma: None, beta: Some(db) });
}
