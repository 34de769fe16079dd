//! The products on the GPU, by cuBLAS.

use super::InnerProduct;
use crate::blas::product;
use tensor::{Out, View, ViewMut, cuda::Cuda};

pub(super) fn forward(cuda: &Cuda, e: &InnerProduct, x: View<'_>, w: View<'_>, y: ViewMut<'_>) {
    let factors = [(x, false), (w, !e.transpose)];
    product(cuda, cuda.tf32, [e.n, e.outputs, e.inputs], factors, y.replaced());
}

pub(super) fn backward_data(cuda: &Cuda, e: &InnerProduct, dy: View<'_>, w: View<'_>, dx: Out<'_>) {
    let factors = [(dy, false), (w, e.transpose)];
    product(cuda, cuda.tf32, [e.n, e.inputs, e.outputs], factors, dx);
}

pub(super) fn backward_weights(cuda: &Cuda, e: &InnerProduct, x: View<'_>, dy: View<'_>, dw: Out<'_>) {
    let (x, dy) = ((x, e.inputs), (dy, e.outputs));
    let ((left, rows), (right, columns)) = if e.transpose { (x, dy) } else { (dy, x) };
    product(cuda, cuda.tf32, [rows, columns, e.n], [(left, true), (right, false)], dw);
}
