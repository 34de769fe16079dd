//! The inner product, or fully connected layer: `y = x w^T`. A [`bias`](crate::bias) is a step of its own.
//!
//! `x` is `n x inputs`, `y` is `n x outputs`, the weights `w` are `outputs x inputs` (or, with `transpose`,
//! `inputs x outputs`). Backward needs the bottom data for `dw` and nothing but the weights for `dx`.
//!
//! The weights are of the blobs' type; their gradient is in single precision.
//!
//! With the mini-batch of a small machine the weights are by far the largest operand and every one of them is used `n`
//! times, so the products with them stream them once, at the speed of memory, without packing.

mod cpu;
#[cfg(test)]
mod tests;

use crate::{AxisExtents, blas};
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

/// `y = x w^T`.
pub fn forward(device: &Device, extents: &InnerProduct, x: View<'_>, w: View<'_>, y: ViewMut<'_>) {
    let &InnerProduct { n, inputs, outputs, transpose } = extents;
    extents.check(x.len(), w.len(), y.len());
    product(device, [n, outputs, inputs], [(x, false), (w, !transpose)], y.replaced());
}

/// `dx (+)= dy w`.
pub fn backward_data(device: &Device, extents: &InnerProduct, dy: View<'_>, w: View<'_>, dx: Out<'_>) {
    let &InnerProduct { n, inputs, outputs, transpose } = extents;
    extents.check(dx.to.len(), w.len(), dy.len());
    product(device, [n, inputs, outputs], [(dy, false), (w, transpose)], dx);
}

/// `dw (+)= dy^T x`.
pub fn backward_weights(device: &Device, extents: &InnerProduct, x: View<'_>, dy: View<'_>, dw: Out<'_>) {
    extents.check(x.len(), dw.to.len(), dy.len());
    let (x, dy) = ((x, extents.inputs), (dy, extents.outputs));
    let ((left, rows), (right, columns)) = if extents.transpose { (x, dy) } else { (dy, x) };
    product(device, [rows, columns, extents.n], [(left, true), (right, false)], dw);
}

/// `c (+)= a b`, where `a` is `m x k`, `b` is `k x n` and `c` is `m x n`; of each factor, whether its transpose is stored.
/// That of `a` is for the gradient of the weights alone: otherwise samples are multiplied by weights.
fn product(device: &Device, extents: [usize; 3], factors: [(View<'_>, bool); 2], c: Out<'_>) {
    match device {
        Device::Cpu(cpu) => cpu::product(cpu, extents, factors, c),
        Device::Cuda(cuda) => blas::product(cuda, cuda.tf32, extents, factors, c),
    }
}
