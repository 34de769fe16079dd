//! The products on the CPU.

use super::InnerProduct;
use crate::AxisExtents;
use crate::cpu_loops::{for_each_column_block, inlined, put};
use tensor::cpu::{LANES, Left, Matrix, block_gemm, gemm};
use tensor::{Accumulate, Cpu, Out, View, ViewMut};

/// The largest mini-batch whose products are bound by memory: above it, packing the weights pays.
const MAX_SAMPLES: usize = 128;
/// Elements of a block of samples, and of a task's sums: together two thirds of a first-level cache.
const ROOM: usize = 8192;

pub(super) fn forward(cpu: &Cpu, e: &InnerProduct, x: View<'_>, w: View<'_>, y: ViewMut<'_>) {
    product(cpu, [e.n, e.inputs, e.outputs], x, weights(e, w), y.replaced());
}

pub(super) fn backward_data(cpu: &Cpu, e: &InnerProduct, dy: View<'_>, w: View<'_>, dx: Out<'_>) {
    product(cpu, [e.n, e.outputs, e.inputs], dy, weights(e, w).t(), dx);
}

/// The weights as `outputs x inputs`, however they are stored.
fn weights<'a>(e: &InnerProduct, w: View<'a>) -> Matrix<'a> {
    if e.transpose { Matrix::rows(w.host(), e.outputs).t() } else { Matrix::rows(w.host(), e.inputs) }
}

pub(super) fn backward_weights(cpu: &Cpu, e: &InnerProduct, x: View<'_>, dy: View<'_>, dw: Out<'_>) {
    let (x, dy, (dw, accumulate)) = ((x.host(), e.inputs), (dy.host(), e.outputs), dw.into_host());
    let ((left, rows), (right, columns)) = if e.transpose { (x, dy) } else { (dy, x) };
    let (left, right) = (Matrix::rows(left, rows).t(), Matrix::rows(right, columns));
    gemm(Some(cpu), [rows, columns, e.n], left, right, dw, columns, accumulate);
}

/// `c (+)= a w^T`, where `a` is `n x k`, `w` is `m x k` and `c` is `n x m`.
///
/// A task computes some columns of `c`. The weights are read where they lie, each once, as the factors that are
/// broadcast; the samples, of which some terms at a time are transposed, are the vectors.
fn product(cpu: &Cpu, [n, k, m]: [usize; 3], a: View<'_>, w: Matrix<'_>, c: Out<'_>) {
    let (a, (c, accumulate)) = (a.host(), c.into_host());
    if n > MAX_SAMPLES {
        return gemm(Some(cpu), [n, m, k], Matrix::rows(a, k), w.t(), c, m, accumulate);
    }
    let width = n.next_multiple_of(LANES).max(LANES);
    let (block, extents) = (ROOM / width, AxisExtents { outer: 1, axis: n, inner: m });
    inlined!(for_each_column_block(cpu, &extents, (block, 1), [c]), |_, columns, [mut c]| {
        let (mut samples, mut sums) = ([0.0; ROOM], [0.0; ROOM]);
        for first in (0..k).step_by(block) {
            let terms = (k - first).min(block);
            for (sample, a) in a.chunks_exact(k).enumerate() {
                let to = samples[sample..].iter_mut().step_by(width);
                to.zip(&a[first..first + terms]).for_each(|(to, &a)| *to = a);
            }
            let start = columns.start * w.row_stride + first * w.col_stride;
            let elements = &w.elements[start..];
            let left = Left::Strided { elements, row_stride: w.row_stride, step: w.col_stride };
            let extents = [columns.len(), width, terms];
            block_gemm(extents, left, (&samples, width), (&mut sums, width), Accumulate::Add, &[]);
        }
        for sample in 0..n {
            let sums = sums[sample..].iter().step_by(width);
            c.row(sample).iter_mut().zip(sums).for_each(|(c, &sum)| put(accumulate, c, sum));
        }
    });
}
