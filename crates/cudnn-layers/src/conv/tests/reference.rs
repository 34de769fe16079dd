//! The definition of the three operations as loops in double precision: slow, obvious, and what all else is tested
//! against.

use crate::conv::ConvOp;
use ndarray::{Array4, ArrayView4, indices};
use tensor::ConvGeometry;

/// `out` of `op` in double precision, starting from zero. Operands as in the table of [`crate::conv`].
pub(crate) fn direct(op: ConvOp, g: &ConvGeometry, a: &[f32], b: &[f32]) -> Vec<f64> {
    let (x, w) = ([g.n, g.c, g.h, g.w], [g.k, g.c / g.groups, g.r, g.s]);
    let y = [g.n, g.k, g.out_h(), g.out_w()];
    let [a_shape, b_shape, out_shape] = match op {
        ConvOp::Forward => [x, w, y],
        ConvOp::BackwardData => [y, w, x],
        ConvOp::BackwardFilter => [x, y, w],
    };
    let view = |shape, values| ArrayView4::from_shape(shape, values).expect("operands of the geometry");
    let (a, b, mut out) = (view(a_shape, a), view(b_shape, b), Array4::<f64>::zeros(out_shape));
    for_each_product(g, |x, w, y| match op {
        ConvOp::Forward => out[y] += f64::from(a[x]) * f64::from(b[w]),
        ConvOp::BackwardData => out[x] += f64::from(a[y]) * f64::from(b[w]),
        ConvOp::BackwardFilter => out[w] += f64::from(a[x]) * f64::from(b[y]),
    });
    out.into_raw_vec_and_offset().0
}

/// Terms in the longest sum behind one output of `op`.
pub(crate) fn terms(op: ConvOp, g: &ConvGeometry) -> usize {
    match op {
        ConvOp::Forward => g.taps(),
        ConvOp::BackwardData => g.k / g.groups * g.r * g.s,
        ConvOp::BackwardFilter => g.n * g.out_pixels(),
    }
}

/// Calls `visit` with the indices into `x`, `w` and `y` of every multiplication of a forward pass.
fn for_each_product(g: &ConvGeometry, mut visit: impl FnMut([usize; 4], [usize; 4], [usize; 4])) {
    let (c_group, k_group) = (g.c / g.groups, g.k / g.groups);
    for (n, k, p, q) in indices((g.n, g.k, g.out_h(), g.out_w())) {
        for (c, r, s) in indices((c_group, g.r, g.s)) {
            let row = (p * g.stride[0] + r * g.dilation[0]).wrapping_sub(g.pad[0]);
            let col = (q * g.stride[1] + s * g.dilation[1]).wrapping_sub(g.pad[1]);
            if row < g.h && col < g.w {
                visit([n, k / k_group * c_group + c, row, col], [k, c, r, s], [n, k, p, q]);
            }
        }
    }
}
