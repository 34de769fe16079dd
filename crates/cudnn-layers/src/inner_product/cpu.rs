//! The three products on the CPU.

use super::InnerProduct;
use tensor::{
    Accumulate, Cpu,
    cpu::gemm::{Matrix, gemm},
};

/// The weights as `outputs x inputs`, however they are stored.
fn weights<'a>(e: &InnerProduct, w: &'a [f32]) -> Matrix<'a> {
    if e.transpose { Matrix::rows(w, e.outputs).t() } else { Matrix::rows(w, e.inputs) }
}

pub(super) fn forward(cpu: &Cpu, e: &InnerProduct, x: &[f32], w: &[f32], y: &mut [f32]) {
    let product = [e.n, e.outputs, e.inputs];
    gemm(cpu, product, Matrix::rows(x, e.inputs), weights(e, w).t(), y, e.outputs, Accumulate::Replace);
}

pub(super) fn backward_data(
    cpu: &Cpu,
    e: &InnerProduct,
    dy: &[f32],
    w: &[f32],
    dx: &mut [f32],
    accumulate: Accumulate,
) {
    let product = [e.n, e.inputs, e.outputs];
    gemm(cpu, product, Matrix::rows(dy, e.outputs), weights(e, w), dx, e.inputs, accumulate);
}

pub(super) fn backward_weights(
    cpu: &Cpu,
    e: &InnerProduct,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    accumulate: Accumulate,
) {
    let (x, dy) = (Matrix::rows(x, e.inputs), Matrix::rows(dy, e.outputs));
    if e.transpose {
        gemm(cpu, [e.inputs, e.outputs, e.n], x.t(), dy, dw, e.outputs, accumulate);
    } else {
        gemm(cpu, [e.outputs, e.inputs, e.n], dy.t(), x, dw, e.inputs, accumulate);
    }
}
