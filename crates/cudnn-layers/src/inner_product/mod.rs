//! The inner product, or fully connected layer: `y = x w^T + b`.
//!
//! `x` is `n x inputs`, `y` is `n x outputs`, the weights `w` are `outputs x inputs` (or, with `transpose`,
//! `inputs x outputs`), the bias has one element per output. Backward needs the bottom data for `dw` and nothing but
//! the weights for `dx`.
//!
//! The weights are of the blobs' type; the bias and all gradients of parameters are in single precision.
//!
//! With the mini-batch of a small machine the weights are by far the largest operand and every one of them is used `n`
//! times, so the products with them stream them once, at the speed of memory, without packing.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use crate::{AxisExtents, bias};
use tensor::{Device, Out, View, ViewMut};

/// The extents of an inner product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InnerProduct {
    /// Samples.
    pub n: usize,
    /// Inputs of a sample.
    pub inputs: usize,
    /// Outputs of a sample.
    pub outputs: usize,
    /// Whether the weights are stored as `inputs x outputs`.
    pub transpose: bool,
}

impl InnerProduct {
    /// Elements of `x`, the weights and `y`.
    pub fn lens(&self) -> [usize; 3] {
        [self.n * self.inputs, self.inputs * self.outputs, self.n * self.outputs]
    }

    /// `y` seen from its outputs, as the bias sees it.
    pub fn rows(&self) -> AxisExtents {
        AxisExtents { outer: self.n, axis: self.outputs, inner: 1 }
    }

    fn check(&self, x: usize, w: usize, y: usize) {
        assert_eq!([x, w, y], self.lens(), "lengths of x, w, y for {self:?}");
    }
}

/// `y = x w^T + b`.
pub fn forward(
    device: &Device,
    extents: &InnerProduct,
    x: View<'_>,
    w: View<'_>,
    b: Option<View<'_>>,
    mut y: ViewMut<'_>,
) {
    extents.check(x.len(), w.len(), y.len());
    on_device!(device, forward(extents, x, w, y.reborrow()));
    if let Some(b) = b {
        bias::forward_in_place(device, &extents.rows(), b, false, y);
    }
}

/// `dx (+)= dy w`.
pub fn backward_data(device: &Device, extents: &InnerProduct, dy: View<'_>, w: View<'_>, dx: Out<'_>) {
    extents.check(dx.to.len(), w.len(), dy.len());
    on_device!(device, backward_data(extents, dy, w, dx));
}

/// `dw (+)= dy^T x`.
pub fn backward_weights(device: &Device, extents: &InnerProduct, x: View<'_>, dy: View<'_>, dw: Out<'_>) {
    extents.check(x.len(), dw.to.len(), dy.len());
    on_device!(device, backward_weights(extents, x, dy, dw));
}
