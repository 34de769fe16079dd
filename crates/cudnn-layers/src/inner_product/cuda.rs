//! The products on the GPU, by cuBLAS.

use super::InnerProduct;
use crate::blas::{Factor, product};
use tensor::{Accumulate, View, ViewMut, cuda::Cuda};

pub(super) fn forward(cuda: &Cuda, e: &InnerProduct, x: View<'_>, w: View<'_>, y: ViewMut<'_>) {
    let (x, w) = (factor(x, false), factor(w, !e.transpose));
    product(cuda, [e.n, e.outputs, e.inputs], x, w, y, Accumulate::Replace);
}

pub(super) fn backward_data(
    cuda: &Cuda,
    e: &InnerProduct,
    dy: View<'_>,
    w: View<'_>,
    dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let (dy, w) = (factor(dy, false), factor(w, e.transpose));
    product(cuda, [e.n, e.inputs, e.outputs], dy, w, dx, accumulate);
}

pub(super) fn backward_weights(
    cuda: &Cuda,
    e: &InnerProduct,
    x: View<'_>,
    dy: View<'_>,
    dw: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let ((left, rows), (right, columns)) =
        if e.transpose { ((x, e.inputs), (dy, e.outputs)) } else { ((dy, e.outputs), (x, e.inputs)) };
    product(cuda, [rows, columns, e.n], factor(left, true), factor(right, false), dw, accumulate);
}

fn factor(view: View<'_>, transposed: bool) -> Factor<'_> {
    Factor { view, transposed }
}
