//! The products of all frequencies of one column of the spectra, and its transformation back.

use super::bins::{BIN, Bins, Work};
use super::product::product;
use super::tiling::{ROWS, TERMS, Tiling, VECTORS};
use super::transform::{fft, tangle, untangle};
use std::ops::Range;
use tensor::Accumulate;
use tensor::cpu::{Lanes, SharedMut, WithLanes};

/// The task of one block of rows and of columns of the product, at one column of the spectra.
pub(super) struct Multiply<'a> {
    pub(super) tiling: &'a Tiling,
    pub(super) left: &'a [f32],
    pub(super) right: &'a [f32],
    pub(super) result: SharedMut<'a>,
    pub(super) index: usize,
    pub(super) scratch: &'a mut [f32],
}

impl Multiply<'_> {
    /// The number of tasks. Those of one column of the spectra follow each other, to share the left operand in cache.
    pub(super) fn tasks(tiling: &Tiling) -> usize {
        let [rows, _, vectors] = tiling.extents;
        tiling.geometry.groups * tiling.half() * rows.div_ceil(ROWS) * vectors.div_ceil(VECTORS)
    }
}

/// What one task computes.
struct Part {
    group: usize,
    /// Column of the spectra.
    j: usize,
    rows: Range<usize>,
    /// Vectors of sixteen columns of the product.
    vectors: Range<usize>,
}

impl Part {
    fn new(tiling: &Tiling, index: usize) -> Self {
        let [rows, _, vectors] = tiling.extents;
        let (row_blocks, vector_blocks) = (rows.div_ceil(ROWS), vectors.div_ceil(VECTORS));
        let (vector, row) = (index % vector_blocks * VECTORS, index / vector_blocks % row_blocks * ROWS);
        let column = index / vector_blocks / row_blocks;
        Self {
            group: column / tiling.half(),
            j: column % tiling.half(),
            rows: row..(row + ROWS).min(rows),
            vectors: vector..(vector + VECTORS).min(vectors),
        }
    }
}

impl WithLanes for Multiply<'_> {
    #[inline(always)]
    fn call<L: Lanes>(self, l: L) {
        let (tiling, t) = (self.tiling, self.tiling.t);
        let part = Part::new(tiling, self.index);
        let [filter_stride, product_stride] = tiling.scratch_strides();
        let (filters, products) = self.scratch.split_at_mut(filter_stride * t);
        let mut work = [Work::CLEARED; 2];
        let left_plane = tiling.plane(&tiling.left);
        let left = &self.left[(part.group * tiling.half() + part.j) * t * left_plane..][..t * left_plane];
        let [row, term] = tiling.left_axes();
        // Filters must be transformed again in every task, so that blocks of them must fit the cache.
        let block = if tiling.right.is_none() { TERMS } else { tiling.extents[1] };
        for start in (0..tiling.extents[1]).step_by(block) {
            let terms = start..(start + block).min(tiling.extents[1]);
            let (right, right_plane, right_stride) = match &tiling.right {
                None => {
                    let to = (&mut *filters, filter_stride);
                    filter_spectra(l, tiling, &part, self.right, terms.clone(), to, &mut work);
                    (&*filters, filter_stride, part.vectors.len() * BIN)
                }
                Some(images) => {
                    let plane = tiling.plane(images);
                    let right = &self.right[(part.group * tiling.half() + part.j) * t * plane..][..t * plane];
                    (&right[part.vectors.start * BIN..], plane, images.blocks() * BIN)
                }
            };
            for v in 0..t {
                let first = row.offset(part.rows.start) + term.offset(terms.start);
                product(
                    l,
                    [part.rows.len(), terms.len(), part.vectors.len()],
                    (&left[v * left_plane + first..], [row, term]),
                    (&right[v * right_plane..], right_stride),
                    (&mut products[v * product_stride..], part.vectors.len() * BIN),
                    if start == 0 { Accumulate::Replace } else { Accumulate::Add },
                    part.j == 0 && v % (t / 2) == 0,
                );
            }
        }
        let rows = tiling.result[0] * BIN;
        for (i, row) in part.rows.clone().enumerate() {
            for (k, vector) in part.vectors.clone().enumerate() {
                let item = (part.group * tiling.extents[0] + row) * tiling.extents[2] + vector;
                let at = (item * tiling.half() + part.j) * rows;
                // SAFETY: this column of this row and vector of the product belongs to this task alone.
                let to = unsafe { self.result.slice(at..at + rows) };
                let from = &mut products[(i * part.vectors.len() + k) * BIN..];
                inverse_column(l, tiling, (from, product_stride), part.j == 0, to, &mut work);
            }
        }
    }
}

/// Transforms the task's column of the row spectra of the filters of `terms`: `[frequency][term][vector]`.
#[inline(always)]
fn filter_spectra<L: Lanes>(
    l: L,
    tiling: &Tiling,
    part: &Part,
    rows: &[f32],
    terms: Range<usize>,
    (spectra, stride): (&mut [f32], usize),
    [work, column]: &mut [Work; 2],
) {
    let (t, taps, vectors) = (tiling.t, tiling.geometry.r * BIN, part.vectors.len());
    assert!((t - 1) * stride + terms.len() * vectors * BIN <= spectra.len(), "the filters do not fit");
    *column = Work::CLEARED;
    let [_, all_terms, all_vectors] = tiling.extents;
    let first = (part.group * tiling.half() + part.j) * all_vectors + part.vectors.start;
    for vector in 0..vectors {
        for (i, term) in terms.clone().enumerate() {
            column.0[..taps].copy_from_slice(&rows[((first + vector) * all_terms + term) * taps..][..taps]);
            let to = Bins::new(&mut spectra[(i * vectors + vector) * BIN..], stride);
            let from = column.bins();
            // SAFETY: the assertion shows that the bins lie inside; the column is a whole `Work`.
            unsafe {
                fft(l, (t, tiling.geometry.r <= t / 4), from, work, to, 0..t);
                if part.j == 0 {
                    untangle(l, t, to);
                }
            }
        }
    }
}

/// Transforms one column of a product back and keeps the rows of the result.
#[inline(always)]
fn inverse_column<L: Lanes>(
    l: L,
    tiling: &Tiling,
    (from, stride): (&mut [f32], usize),
    packed: bool,
    to: &mut [f32],
    [work, _]: &mut [Work; 2],
) {
    let (t, first, rows) = (tiling.t, tiling.first[0], tiling.result[0]);
    assert!((t - 1) * stride + BIN <= from.len(), "the product does not fit");
    assert!(rows * BIN <= to.len() && first + rows <= t, "the result does not fit");
    // The first of the bins in `to` has the number `first`.
    let (from, to) = (Bins::new(from, stride), Bins::at(to.as_mut_ptr().wrapping_sub(first * BIN), BIN));
    // SAFETY: the assertions show that the bins lie inside.
    unsafe {
        if packed {
            tangle(l, t, from);
        }
        fft(l, (t, false), from.swapped(), work, to.swapped(), first..first + rows);
    }
}
