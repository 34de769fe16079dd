//! The products on the GPU, by cuBLAS.

use super::InnerProduct;
use crate::{
    blas::{Factor, product},
    copy::convert,
};
use tensor::{Accumulate, Device, ElementType, Format, View, ViewMut, cuda::Cuda};

pub(super) fn forward(
    cuda: &Cuda,
    e: &InnerProduct,
    x: View<'_>,
    w: View<'_>,
    y: ViewMut<'_>,
    mut scratch: ViewMut<'_>,
) {
    let w = of_type(cuda, x.format().dtype, w, &mut scratch);
    let (x, w) = (factor(x, false), factor(w, !e.transpose));
    product(cuda, [e.n, e.outputs, e.inputs], x, w, y, Accumulate::Replace);
}

/// The weights as the products want them beside blobs of type `dtype`: in BF16 a copy.
fn of_type<'a>(cuda: &Cuda, dtype: ElementType, w: View<'a>, scratch: &'a mut ViewMut<'_>) -> View<'a> {
    if w.format().dtype == dtype {
        return w;
    }
    let len = w.len();
    let device = Device::Cuda(cuda.clone());
    let mut whole = scratch.reborrow();
    convert(&device, &[len], w, whole.take(Format { dtype, ..Format::default() }, len), Accumulate::Replace);
    scratch.as_view().take(Format { dtype, ..Format::default() }, len)
}

pub(super) fn backward_data(
    cuda: &Cuda,
    e: &InnerProduct,
    dy: View<'_>,
    w: View<'_>,
    dx: ViewMut<'_>,
    accumulate: Accumulate,
    mut scratch: ViewMut<'_>,
) {
    let w = of_type(cuda, dy.format().dtype, w, &mut scratch);
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
