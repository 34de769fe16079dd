//! The definition of the three operations as loops in double precision: slow, obvious, and what all else is tested against.

use crate::conv::{ConvOp, operand_lens};
use tensor::ConvGeometry;

/// `out` of `op` in double precision, starting from zero. Operands as in the table of [`crate::conv`].
pub(crate) fn direct(op: ConvOp, g: &ConvGeometry, a: &[f32], b: &[f32]) -> Vec<f64> {
    let mut out = vec![0.0; operand_lens(op, g)[2]];
    for_each_product(g, |x, w, y| match op {
        ConvOp::Forward => out[y] += f64::from(a[x]) * f64::from(b[w]),
        ConvOp::BackwardData => out[x] += f64::from(a[y]) * f64::from(b[w]),
        ConvOp::BackwardFilter => out[w] += f64::from(a[x]) * f64::from(b[y]),
    });
    out
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
fn for_each_product(g: &ConvGeometry, mut visit: impl FnMut(usize, usize, usize)) {
    let (c_group, k_group) = (g.c / g.groups, g.k / g.groups);
    let (out_h, out_w) = (g.out_h(), g.out_w());
    for (n, k, p, q) in (0..g.n).flat_map(|n| {
        (0..g.k).flat_map(move |k| (0..out_h).flat_map(move |p| (0..out_w).map(move |q| (n, k, p, q))))
    }) {
        let y = ((n * g.k + k) * out_h + p) * out_w + q;
        for (c, r, s) in
            (0..c_group).flat_map(|c| (0..g.r).flat_map(move |r| (0..g.s).map(move |s| (c, r, s))))
        {
            let row = (p * g.stride[0] + r * g.dilation[0]).wrapping_sub(g.pad[0]);
            let col = (q * g.stride[1] + s * g.dilation[1]).wrapping_sub(g.pad[1]);
            if row < g.h && col < g.w {
                let channel = k / k_group * c_group + c;
                let x = ((n * g.c + channel) * g.h + row) * g.w + col;
                visit(x, ((k * c_group + c) * g.r + r) * g.s + s, y);
            }
        }
    }
}
