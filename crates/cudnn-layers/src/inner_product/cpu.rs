//! The products on the CPU: which of the three forms below each pass is, for either layout of the weights.
//!
//! | pass | weights `outputs x inputs` | weights `inputs x outputs` |
//! | --- | --- | --- |
//! | `y = x w^T` | rows of `w` times rows of `x`: [`dot::rows_by_rows`] | sum of rows of `w`: [`stream::sums_of_rows`] |
//! | `dx = dy w` | sum of rows of `w` | rows of `w` times rows of `dy` |
//! | `dw = dy^T x` | outer products: [`stream::outer_products`] | outer products |

use super::{
    InnerProduct, dot,
    stream::{self, MAX_SAMPLES},
};
use tensor::{
    Accumulate, Cpu,
    cpu::gemm::{Matrix, gemm},
};

pub(super) fn forward(cpu: &Cpu, e: &InnerProduct, x: &[f32], w: &[f32], y: &mut [f32]) {
    product(cpu, [e.n, e.inputs, e.outputs], x, (w, e.transpose), y, Accumulate::Replace);
}

pub(super) fn backward_data(
    cpu: &Cpu,
    e: &InnerProduct,
    dy: &[f32],
    w: &[f32],
    dx: &mut [f32],
    accumulate: Accumulate,
) {
    product(cpu, [e.n, e.outputs, e.inputs], dy, (w, !e.transpose), dx, accumulate);
}

pub(super) fn backward_weights(
    cpu: &Cpu,
    e: &InnerProduct,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    accumulate: Accumulate,
) {
    let ((left, rows), (right, cols)) =
        if e.transpose { ((x, e.inputs), (dy, e.outputs)) } else { ((dy, e.outputs), (x, e.inputs)) };
    if e.n <= MAX_SAMPLES {
        return stream::outer_products(cpu, [e.n, rows, cols], left, right, dw, accumulate);
    }
    let (left, right) = (Matrix::rows(left, rows), Matrix::rows(right, cols));
    gemm(cpu, [rows, cols, e.n], left.t(), right, dw, cols, accumulate);
}

/// `c (+)= a w`, where `a` is `n x k`, `c` is `n x m`, and the weights are `k x m` if `by_sums`, else `m x k`.
fn product(
    cpu: &Cpu,
    extents: [usize; 3],
    a: &[f32],
    (w, by_sums): (&[f32], bool),
    c: &mut [f32],
    accumulate: Accumulate,
) {
    let [n, k, m] = extents;
    if n <= MAX_SAMPLES {
        return match by_sums {
            true => stream::sums_of_rows(cpu, extents, a, w, c, accumulate),
            false => dot::rows_by_rows(cpu, extents, a, w, c, accumulate),
        };
    }
    // A mini-batch this large is bound by arithmetic, for which packing pays.
    let w = if by_sums { Matrix::rows(w, m) } else { Matrix::rows(w, k).t() };
    gemm(cpu, [n, m, k], Matrix::rows(a, k), w, c, m, accumulate);
}
