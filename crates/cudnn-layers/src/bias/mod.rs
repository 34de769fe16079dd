//! A bias per channel: `y[n][c][..] += b[c]`, and its gradient `db[c] = sum over n and pixels of dy[n][c][..]`. It is
//! [`scale`] without a factor.
//!
//! The gradient with respect to the other operand is `dy` itself, so nothing is saved and in place is the only form.

#[cfg(test)]
mod tests;

use crate::AxisExtents;
use crate::activation::{self, Activation};
use crate::scale::{self, Affine, cpu, cuda};
use tensor::{Device, Out, View, ViewMut};

/// Adds `b` (one element per channel, the axis of `extents`) to `y`; with `relu`, the sum is rectified on the way.
pub fn forward_in_place(device: &Device, extents: &AxisExtents, b: View<'_>, relu: bool, y: ViewMut<'_>) {
    scale::forward(device, extents, Affine { gamma: None, beta: Some(b) }, relu, None, y);
}

/// `db (+)= sums of dy`; if a ReLU has left `y`, of the `dy` where `y > 0`.
pub fn backward(device: &Device, extents: &AxisExtents, y: Option<View<'_>>, dy: View<'_>, db: Out<'_>) {
    check(extents, [y.unwrap_or(dy), dy], &db);
    on_device!(device, backward_bias(extents, (y, None), dy, db));
}

/// The same on the way through the ReLU: `dy` becomes 0 where `y` is not above 0.
pub fn backward_in_place(device: &Device, e: &AxisExtents, y: View<'_>, mut dy: ViewMut<'_>, db: Out<'_>) {
    check(e, [y, dy.as_view()], &db);
    if let Device::Cuda(cuda) = device {
        return cuda::backward_bias(cuda, e, (Some(y), Some(dy.numbers())), dy.as_view(), db);
    }
    activation::backward(device, Activation::RELU, y, None, dy.reborrow().replaced());
    backward(device, e, None, dy.as_view(), db);
}

fn check(extents: &AxisExtents, blobs: [View<'_>; 2], db: &Out<'_>) {
    let lens = blobs.map(|blob| blob.len());
    assert_eq!((lens, db.to.len()), ([extents.len(); 2], extents.axis), "lengths of y, dy and db");
}
