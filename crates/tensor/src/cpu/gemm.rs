//! Matrix products, by the `gemm` family of crates: single precision only, as the rest takes half a minute to compile.

use super::Cpu;
use crate::Accumulate;
use gemm_common::Parallelism;

/// A matrix in a slice: element `(i, j)` lies at `i * row_stride + j * col_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// The elements.
    pub elements: &'a [f32],
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance between columns.
    pub col_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A dense row-major matrix of `cols` columns.
    pub fn rows(elements: &'a [f32], cols: usize) -> Self {
        Self { elements, row_stride: cols, col_stride: 1 }
    }

    /// The transpose.
    pub fn t(self) -> Self {
        Self { elements: self.elements, row_stride: self.col_stride, col_stride: self.row_stride }
    }
}

/// Allocates what products on this thread pack one operand into: else it would happen in the middle of an iteration.
pub(super) fn allocate_for_this_thread() {
    gemm_common::gemm::L2_SLAB.with(|_| ());
}

/// `c (+)= a b`, where `a` is `m x k`, `b` is `k x n` and the rows of `c` follow each other: on all threads of `cpu`,
/// or, inside a task, on the calling thread alone. What the library packs the other operand into, a few MiB for
/// large products, it allocates in each call and gives back, as it takes none that is lent.
///
/// # Panics
/// If a slice is too short for its extents.
pub fn gemm(
    cpu: Option<&Cpu>,
    [m, n, k]: [usize; 3],
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [f32],
    accumulate: Accumulate,
) {
    if m == 0 || n == 0 {
        return;
    }
    for (matrix, extents) in [(a, [m, k]), (b, [k, n])] {
        check("an operand", matrix.elements, extents, [matrix.row_stride, matrix.col_stride]);
    }
    check("the product", c, [m, n], [n, 1]);
    #[rustfmt::skip] // a matrix a line
    // SAFETY: the checks above show that every element addressed with these extents and strides lies inside its
    // slice; `c` is borrowed mutably, so it overlaps neither operand.
    // The library prefers columns of the product to lie together, so it is given the transpose: `c' = b' a'`.
    let multiply = |c: &mut [f32], parallelism| unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            n, m, k,
            c.as_mut_ptr(), n as isize, 1, accumulate == Accumulate::Add,
            b.elements.as_ptr(), b.row_stride as isize, b.col_stride as isize,
            a.elements.as_ptr(), a.row_stride as isize, a.col_stride as isize,
            1.0, 1.0, false, false, false, parallelism,
        );
    };
    match cpu {
        Some(cpu) if cpu.threads() > 1 => cpu.run(|| multiply(c, Parallelism::Rayon(cpu.threads()))),
        Some(cpu) => cpu.run(|| multiply(c, Parallelism::None)),
        None => multiply(c, Parallelism::None),
    }
}

/// So many rows and columns, whose elements lie so far apart, are all among `elements`.
pub(super) fn check(what: &str, elements: &[f32], extents: [usize; 2], strides: [usize; 2]) {
    let [down, right] = [0, 1].map(|axis| extents[axis].saturating_sub(1).checked_mul(strides[axis]));
    let last = down.zip(right).and_then(|(down, right)| down.checked_add(right));
    let fits = extents.contains(&0) || last.is_some_and(|last| last < elements.len());
    assert!(fits, "{what} of {} x {} does not fit its slice", extents[0], extents[1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small integers: exact in f32 whatever the order of summation.
    #[test]
    fn products_transposes_and_accumulation_are_exact() {
        let (m, n, k) = (5, 7, 11);
        let a: Vec<f32> = (0..m * k).map(|i| (i % 7) as f32 - 3.0).collect();
        let b: Vec<f32> = (0..n * k).map(|i| (i % 5) as f32 - 2.0).collect();
        for threads in [1, 2] {
            for accumulate in [Accumulate::Replace, Accumulate::Add] {
                let mut c = vec![1.0; m * n + 2];
                // b is stored as n x k and used transposed.
                let (a, b) = (Matrix::rows(&a, k), Matrix::rows(&b, k).t());
                gemm(Some(&Cpu::new(threads)), [m, n, k], a, b, &mut c, accumulate);
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let dot: f32 = (0..k).map(|p| a.elements[i * k + p] * b.elements[j * k + p]).sum();
                    let start = if accumulate == Accumulate::Add { 1.0 } else { 0.0 };
                    assert_eq!(c[i * n + j], dot + start);
                }
                assert_eq!(c[m * n..], [1.0; 2], "what lies behind the product stays untouched");
            }
        }
    }

    #[test]
    #[should_panic(expected = "does not fit its slice")]
    fn a_short_operand_is_refused() {
        let (a, b) = (Matrix::rows(&[0.0; 3], 2), Matrix::rows(&[0.0; 4], 2));
        gemm(None, [2, 2, 2], a, b, &mut [0.0; 4], Accumulate::Add);
    }
}
