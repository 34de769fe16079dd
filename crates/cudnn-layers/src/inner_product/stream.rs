//! Products whose long vectors run along the rows of the weights, or of their gradient.

use crate::{
    AxisExtents,
    cpu_loops::{for_each_column_block, for_each_run, put},
};
use tensor::{
    Accumulate, Cpu,
    cpu::{
        block_gemm::{Left, block_gemm},
        gemm::{Matrix, gemm_single},
        simd::LANES,
    },
};

/// The largest mini-batch for these forms; above it a product is bound by arithmetic.
pub(super) const MAX_SAMPLES: usize = 128;
/// Elements of a task's sums: half of a typical share of second-level cache is left to the weights.
const ROOM: usize = 1 << 14;
/// Widest block of columns of the weights: 2 KiB from each row.
const WIDTH: usize = 512;
/// Rows of the weights that are gone through before the next columns' turn comes.
const ROWS: usize = 32;

/// Asks for the cache line `offset` elements after the start of `elements`; any address is harmless.
#[inline(always)]
pub(super) fn prefetch(elements: &[f32], offset: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = elements.as_ptr().wrapping_add(offset).cast::<i8>();
        // SAFETY: a prefetch reads nothing architecturally and faults on no address; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (elements, offset);
}

/// `c[s][i] (+)= sum over o of a[s][o] * w[o][i]` for `[samples, terms, columns]`.
pub(super) fn sums_of_rows(
    cpu: &Cpu,
    [n, k, m]: [usize; 3],
    a: &[f32],
    w: &[f32],
    c: &mut [f32],
    accumulate: Accumulate,
) {
    let extents = AxisExtents { outer: 1, axis: n, inner: m };
    let width = (ROOM / n.max(1)).min(WIDTH) / LANES * LANES;
    for_each_column_block(
        cpu,
        &extents,
        (width, 1),
        [c],
        #[inline(always)]
        |_, columns, [mut c]| {
            let mut sums = [0.0; ROOM];
            let sums = &mut sums[..n * width];
            let w = &w[columns.start.min(w.len())..];
            if columns.len().is_multiple_of(LANES) {
                RowSums { extents: [n, k, columns.len()], a, w: (w, m), sums: (sums, width) }.run();
            } else {
                let w = Matrix::rows(w, m);
                let extents = [n, columns.len(), k];
                gemm_single(extents, Matrix::rows(a, k), w, sums, width, Accumulate::Replace);
            }
            for (sample, sums) in sums.chunks_exact(width).enumerate() {
                c.row(sample).iter_mut().zip(sums).for_each(|(c, &sum)| put(accumulate, c, sum));
            }
        },
    );
}

/// One block of columns of [`sums_of_rows`]: a few rows of the weights at a time, which all samples then use from cache.
struct RowSums<'a> {
    extents: [usize; 3],
    a: &'a [f32],
    w: (&'a [f32], usize),
    sums: (&'a mut [f32], usize),
}

impl RowSums<'_> {
    fn run(self) {
        let ([n, k, columns], (w, w_stride), (sums, width)) = (self.extents, self.w, self.sums);
        // Samples lie a power of two apart in many nets and would then share one set of the cache.
        let mut packed = [0.0; MAX_SAMPLES * ROWS];
        for first in (0..k).step_by(ROWS) {
            let rows = (k - first).min(ROWS);
            pack(&self.a[first..], k, rows, &mut packed, ROWS);
            let left = Left { elements: &packed, row_stride: ROWS, step: 1 };
            let right = (&w[first * w_stride..], w_stride);
            block_gemm([n, columns, rows], left, right, (sums, width), Accumulate::Add);
        }
    }
}

/// `c[r][i] (+)= sum over s of left[s][r] * right[s][i]` for `[samples, rows, columns]`: every element of `c` is visited
/// once, row by row.
pub(super) fn outer_products(
    cpu: &Cpu,
    [n, rows, columns]: [usize; 3],
    left: &[f32],
    right: &[f32],
    c: &mut [f32],
    accumulate: Accumulate,
) {
    for_each_run(
        cpu,
        rows,
        OUTER_ROWS,
        [c],
        #[inline(always)]
        |range, [c]| {
            let extents = [n, range.len(), columns];
            Outer { extents, left: (&left[range.start..], rows), right, c, accumulate }.run();
        },
    );
}

/// Rows of the product of a task: what one block of `right` is used for.
const OUTER_ROWS: usize = 64;
/// Elements of that block.
const OUTER_ROOM: usize = 6144;

/// Some rows of [`outer_products`]. Both operands are packed, a block of columns at a time: their samples often lie a power of
/// two apart and would share one set of the cache.
struct Outer<'a> {
    extents: [usize; 3],
    left: (&'a [f32], usize),
    right: &'a [f32],
    c: &'a mut [f32],
    accumulate: Accumulate,
}

impl Outer<'_> {
    fn run(self) {
        let ([n, rows, columns], (left, step)) = (self.extents, self.left);
        let whole = columns / LANES * LANES;
        let width = OUTER_ROOM / n.max(1) / LANES * LANES;
        let (mut a, mut b) = ([0.0; MAX_SAMPLES * OUTER_ROWS], [0.0; OUTER_ROOM]);
        pack(left, step, rows, &mut a, OUTER_ROWS);
        let a = Left { elements: &a, row_stride: 1, step: OUTER_ROWS };
        for first in (0..whole).step_by(width) {
            let width = (whole - first).min(width);
            pack(&self.right[first..], columns, width, &mut b, width);
            let c = (&mut self.c[first..], columns);
            block_gemm([rows, width, n], a, (&b, width), c, self.accumulate);
        }
        if whole < columns && n > 0 {
            let left = Matrix::rows(left, step).t();
            let right = Matrix::rows(&self.right[whole..], columns);
            let extents = [rows, columns - whole, n];
            gemm_single(extents, left, right, &mut self.c[whole..], columns, self.accumulate);
        }
    }
}

/// Copies the first `width` elements of rows `stride` apart to rows `to_stride` apart.
#[inline(always)]
fn pack(from: &[f32], stride: usize, width: usize, to: &mut [f32], to_stride: usize) {
    for (to, from) in to.chunks_exact_mut(to_stride).zip(from.chunks(stride)) {
        to[..width].copy_from_slice(&from[..width]);
    }
}
