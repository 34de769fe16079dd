//! The products on the GPU, by cuBLAS.

use super::InnerProduct;
use crate::{
    blas::{Factor, product},
    copy::convert,
};
use tensor::{Device, Format, Out, View, ViewMut, cuda::Cuda};

pub(super) fn forward(
    cuda: &Cuda,
    e: &InnerProduct,
    x: View<'_>,
    w: View<'_>,
    y: ViewMut<'_>,
    mut copied: ViewMut<'_>,
) {
    let format = Format { dtype: x.format().dtype, ..Format::default() };
    if w.format().dtype != format.dtype {
        let copy = copied.reborrow().take(format, w.len());
        convert(&Device::Cuda(cuda.clone()), &[w.len()], w, copy.replaced());
    }
    let (x, w) = (factor(x, false), factor(of_type(x, w, copied.as_view()), !e.transpose));
    product(cuda, [e.n, e.outputs, e.inputs], x, w, y.replaced());
}

/// The weights as the products want them beside blobs of this type: in BF16 the copy.
fn of_type<'a>(blob: View<'_>, w: View<'a>, mut copied: View<'a>) -> View<'a> {
    let format = Format { dtype: blob.format().dtype, ..Format::default() };
    if w.format().dtype == format.dtype { w } else { copied.take(format, w.len()) }
}

pub(super) fn backward_data(
    cuda: &Cuda,
    e: &InnerProduct,
    dy: View<'_>,
    w: View<'_>,
    dx: Out<'_>,
    copied: View<'_>,
) {
    let (dy, w) = (factor(dy, false), factor(of_type(dy, w, copied), e.transpose));
    product(cuda, [e.n, e.inputs, e.outputs], dy, w, dx);
}

pub(super) fn backward_weights(cuda: &Cuda, e: &InnerProduct, x: View<'_>, dy: View<'_>, dw: Out<'_>) {
    let (x, dy) = ((x, e.inputs), (dy, e.outputs));
    let ((left, rows), (right, columns)) = if e.transpose { (x, dy) } else { (dy, x) };
    product(cuda, [rows, columns, e.n], factor(left, true), factor(right, false), dw);
}

fn factor(view: View<'_>, transposed: bool) -> Factor<'_> {
    Factor { view, transposed }
}
