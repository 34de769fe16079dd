//! The products on the CPU.

use crate::AxisExtents;
use crate::cpu_loops::{for_each_column_block, inlined, put};
use tensor::cpu::{LANES, Left, Matrix, block_gemm, gemm};
use tensor::{Accumulate, Cpu, Out, View};

/// The largest mini-batch whose products are bound by memory: above it, packing the weights pays.
const MAX_SAMPLES: usize = 128;
/// Elements of a block of samples, and of a task's sums: together two thirds of a first-level cache.
const ROOM: usize = 8192;

/// Of samples by weights for which it pays: a task computes some columns of `c`. The weights are read where they lie, each
/// once, as the factors that are broadcast; the samples, of which some terms at a time are transposed, are the vectors.
pub(super) fn product(
    cpu: &Cpu,
    [n, m, k]: [usize; 3],
    [samples, weights]: [(View<'_>, bool); 2],
    c: Out<'_>,
) {
    let [a, w] = [matrix(samples, [n, k]), matrix(weights, [k, m])];
    let (c, accumulate) = c.into_host();
    if samples.1 || n > MAX_SAMPLES {
        return gemm(Some(cpu), [n, m, k], a, w, c, accumulate);
    }
    let (a, w) = (a.elements, w.t());
    let width = n.next_multiple_of(LANES).max(LANES);
    let (block, extents) = (ROOM / width, AxisExtents { outer: 1, axis: n, inner: m });
    inlined!(for_each_column_block(cpu, &extents, (block, 1), c), |_, columns, mut c| {
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
            block_gemm(extents, left, &samples, &mut sums, Accumulate::Add, &[]);
        }
        for sample in 0..n {
            let sums = sums[sample..].iter().step_by(width);
            c.row(sample).iter_mut().zip(sums).for_each(|(c, &sum)| put(accumulate, c, sum));
        }
    });
}

/// A factor of so many rows and columns; and whether its transpose is stored.
fn matrix((elements, is_transposed): (View<'_>, bool), [rows, columns]: [usize; 2]) -> Matrix<'_> {
    if is_transposed {
        Matrix::rows(elements.host(), rows).t()
    } else {
        Matrix::rows(elements.host(), columns)
    }
}
