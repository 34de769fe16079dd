//! The products of all frequencies of one column of the spectra, and its transformation back.

use super::{
    complex::{BIN, Bin, C, CLEARED, ComplexLanes, Work, fft, inlined, swap, tangle, untangle},
    image::{bins, bins_mut},
    plan::{Plan, ROWS, Right, TERMS, VECTORS},
    product::{Axis, Product},
};
use std::ops::Range;
use tensor::{
    Accumulate,
    cpu::{
        SharedMut,
        simd::{Lanes, WithLanes},
    },
};

/// The task of one block of rows and of columns of the product, at one column of the spectra.
pub(super) struct Multiply<'a> {
    pub(super) plan: &'a Plan,
    pub(super) left: &'a [f32],
    pub(super) right: &'a [f32],
    pub(super) result: SharedMut<'a>,
    pub(super) index: usize,
    pub(super) scratch: &'a mut [f32],
}

impl Multiply<'_> {
    /// The number of tasks. Those of one column of the spectra follow each other, to share the left operand in cache.
    pub(super) fn tasks(plan: &Plan) -> usize {
        let [rows, _, vectors] = plan.extents;
        plan.geometry.groups * plan.half() * rows.div_ceil(ROWS) * vectors.div_ceil(VECTORS)
    }
}

impl WithLanes for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, l: L) {
        if self.plan.t == 32 { self.column::<L, 32>(l) } else { self.column::<L, 16>(l) }
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
    fn new(plan: &Plan, index: usize) -> Self {
        let [rows, _, vectors] = plan.extents;
        let (row_blocks, vector_blocks) = (rows.div_ceil(ROWS), vectors.div_ceil(VECTORS));
        let (vector, row) = (index % vector_blocks * VECTORS, index / vector_blocks % row_blocks * ROWS);
        let column = index / vector_blocks / row_blocks;
        Self {
            group: column / plan.half(),
            j: column % plan.half(),
            rows: row..(row + ROWS).min(rows),
            vectors: vector..(vector + VECTORS).min(vectors),
        }
    }
}

impl Multiply<'_> {
    #[inline(always)]
    fn column<L: Lanes, const T: usize>(self, l: L) {
        let plan = self.plan;
        let part = Part::new(plan, self.index);
        let [filter_stride, product_stride] = plan.scratch_strides();
        let (filters, product) = self.scratch.split_at_mut(filter_stride * T);
        let mut work = [CLEARED; 2];
        let left_blocks = plan.left.blocks() * BIN;
        let left_plane = plan.plane(&plan.left);
        let left = &self.left[(part.group * T / 2 + part.j) * T * left_plane..][..T * left_plane];
        match &plan.right {
            Right::Filter => {
                for terms in (0..plan.extents[1]).step_by(TERMS) {
                    let terms = terms..(terms + TERMS).min(plan.extents[1]);
                    let right = &self.right[filter_columns(plan, &part)];
                    filter_spectra::<L, T>(
                        l,
                        plan,
                        &part,
                        right,
                        terms.clone(),
                        (filters, filter_stride),
                        &mut work,
                    );
                    for v in 0..T {
                        let left =
                            &left[v * left_plane + part.rows.start * left_blocks + terms.start / 16 * BIN..];
                        Product {
                            extents: [part.rows.len(), terms.len(), part.vectors.len()],
                            left,
                            row: Axis::every(left_blocks),
                            term: Axis::CHANNELS,
                            right: (&filters[v * filter_stride..], part.vectors.len() * BIN),
                            out: (&mut product[v * product_stride..], part.vectors.len() * BIN),
                            accumulate: if terms.start == 0 { Accumulate::Replace } else { Accumulate::Add },
                        }
                        .run(l, part.j == 0 && v % (T / 2) == 0);
                    }
                }
            }
            Right::Images(images) => {
                let plane = plan.plane(images);
                let right = &self.right[(part.group * T / 2 + part.j) * T * plane..][..T * plane];
                for v in 0..T {
                    Product {
                        extents: [part.rows.len(), plan.extents[1], part.vectors.len()],
                        left: &left[v * left_plane + part.rows.start / 16 * BIN..],
                        row: Axis::CHANNELS,
                        term: Axis::every(left_blocks),
                        right: (&right[v * plane + part.vectors.start * BIN..], images.blocks() * BIN),
                        out: (&mut product[v * product_stride..], part.vectors.len() * BIN),
                        accumulate: Accumulate::Replace,
                    }
                    .run(l, part.j == 0 && v % (T / 2) == 0);
                }
            }
        }
        let rows = plan.result[0];
        for (i, row) in part.rows.clone().enumerate() {
            for (k, vector) in part.vectors.clone().enumerate() {
                let item = (part.group * plan.extents[0] + row) * plan.extents[2] + vector;
                let at = (item * plan.half() + part.j) * rows * BIN;
                // SAFETY: this column of this row and vector of the product belongs to this task alone.
                let to = unsafe { self.result.slice(at..at + rows * BIN) };
                let from = &bins(product)[i * part.vectors.len() + k..];
                let stride = product_stride / BIN;
                inverse_column::<L, T>(
                    l,
                    (from, stride),
                    part.j == 0,
                    plan.first[0],
                    bins_mut(to),
                    &mut work,
                );
            }
        }
    }
}

/// The row spectra of the filters at a task's column: `[vector][term][filter row]`.
fn filter_columns(plan: &Plan, part: &Part) -> Range<usize> {
    let [_, terms, vectors] = plan.extents;
    let len = terms * plan.geometry.r * BIN;
    let first = (part.group * plan.half() + part.j) * vectors;
    (first + part.vectors.start) * len..(first + part.vectors.end) * len
}

/// Transforms a column of the filters of `terms`: `[frequency][term][vector]`.
#[inline(always)]
fn filter_spectra<L: Lanes, const T: usize>(
    l: L,
    plan: &Plan,
    part: &Part,
    columns: &[f32],
    terms: Range<usize>,
    (spectra, stride): (&mut [f32], usize),
    [work, packed]: &mut [Work; 2],
) {
    let (r, vectors) = (plan.geometry.r, part.vectors.len());
    let (columns, spectra, stride) = (bins(columns), bins_mut(spectra), stride / BIN);
    for vector in 0..vectors {
        for (i, term) in terms.clone().enumerate() {
            let taps = &columns[(vector * plan.extents[1] + term) * r..][..r];
            let input = inlined(
                #[inline(always)]
                |tap: usize| if tap < r { l.load_bin(&taps[tap]) } else { [l.zero(); 2] },
            );
            let at = i * vectors + vector;
            let output = inlined(
                #[inline(always)]
                |v: usize, z: C<L>| l.store_bin(&mut spectra[v * stride + at], z),
            );
            if part.j == 0 {
                let store = inlined(
                    #[inline(always)]
                    |v: usize, z: C<L>| l.store_bin(&mut packed.0[v], z),
                );
                fft(l, T, false, work, input, store);
                untangle(l, T, packed);
                for (v, &bin) in packed.0.iter().enumerate().take(T) {
                    spectra[v * stride + at] = bin;
                }
            } else if r <= T / 4 {
                fft(l, T, true, work, input, output);
            } else {
                fft(l, T, false, work, input, output);
            }
        }
    }
}

/// Transforms one column of a product back and keeps rows `first..first + to.len()`.
#[inline(always)]
fn inverse_column<L: Lanes, const T: usize>(
    l: L,
    (from, stride): (&[Bin], usize),
    packed: bool,
    first: usize,
    to: &mut [Bin],
    [work, column]: &mut [Work; 2],
) {
    let output = inlined(
        #[inline(always)]
        |row: usize, z: C<L>| {
            if let Some(to) = to.get_mut(row.wrapping_sub(first)) {
                l.store_bin(to, swap(z));
            }
        },
    );
    if packed {
        for (v, bin) in column.0.iter_mut().enumerate().take(T) {
            *bin = from[v * stride];
        }
        tangle(l, T, column);
        fft(
            l,
            T,
            false,
            work,
            #[inline(always)]
            |v| swap(l.load_bin(&column.0[v])),
            output,
        );
    } else {
        fft(
            l,
            T,
            false,
            work,
            #[inline(always)]
            |v| swap(l.load_bin(&from[v * stride])),
            output,
        );
    }
}
