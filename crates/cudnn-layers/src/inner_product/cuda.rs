//! The products on the GPU, by cuBLAS.

use super::InnerProduct;
use crate::blas::{Factor, product};
use tensor::{Out, View, ViewMut, cuda::Cuda};

pub(super) fn forward(cuda: &Cuda, e: &InnerProduct, x: View<'_>, w: View<'_>, y: ViewMut<'_>) {
    let (x, w) = (factor(x, false), factor(w, !e.transpose));
    product(cuda, cuda.allows_tf32(), [e.n, e.outputs, e.inputs], x, w, y.replaced());
}

pub(super) fn backward_data(cuda: &Cuda, e: &InnerProduct, dy: View<'_>, w: View<'_>, dx: Out<'_>) {
    let (dy, w) = (factor(dy, false), factor(w, e.transpose));
    product(cuda, cuda.allows_tf32(), [e.n, e.inputs, e.outputs], dy, w, dx);
}

pub(super) fn backward_weights(cuda: &Cuda, e: &InnerProduct, x: View<'_>, dy: View<'_>, dw: Out<'_>) {
    let (x, dy) = ((x, e.inputs), (dy, e.outputs));
    let ((left, rows), (right, columns)) = if e.transpose { (x, dy) } else { (dy, x) };
    product(cuda, cuda.allows_tf32(), [rows, columns, e.n], factor(left, true), factor(right, false), dw);
}

fn factor(view: View<'_>, transposed: bool) -> Factor<'_> {
    Factor { view, transposed }
}
