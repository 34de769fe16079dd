//! Matrix products of one frequency: complex, sixteen columns to a vector.

use super::bins::{BIN, Bins, C};
use tensor::Accumulate;
use tensor::cpu::{LANES, Lanes};

/// Rows and vectors of a register tile at most: 8 complex accumulators, 2 complex vectors of the right operand, a
/// broadcast. Where there are fewer registers, half of each.
const TILE: [usize; 2] = [4, 2];

/// Where along one axis of the left operand the real parts lie; the imaginary part is [`LANES`] further.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProductAxis {
    stride: usize,
    run: usize,
    jump: usize,
}

impl ProductAxis {
    /// Channels: runs of sixteen.
    pub(super) const CHANNELS: Self = Self { stride: 1, run: LANES, jump: BIN };

    /// Equally far apart.
    pub(super) fn every(stride: usize) -> Self {
        Self { stride, run: usize::MAX, jump: 0 }
    }

    pub(super) fn offset(self, index: usize) -> usize {
        index / self.run * self.jump + index % self.run * self.stride
    }
}

/// `out[row][col] (+)= sum over terms of left(row, term) * right[term][col]` for so many rows, terms, and columns in
/// vectors: products of complex values, or with `separate` of real and imaginary parts each on their own.
///
/// Element `(row, term)` of the left operand lies at the sum of both axes' offsets; terms of the right operand and rows
/// of the result lie equally far apart.
#[inline(always)]
pub(super) fn product<L: Lanes>(
    lanes: L,
    [rows, terms, vectors]: [usize; 3],
    (left, [row, term]): (&[f32], [ProductAxis; 2]),
    (right, right_stride): (&[f32], usize),
    (out, out_stride): (&mut [f32], usize),
    accumulate: Accumulate,
    separate: bool,
) {
    let last = row.offset(rows - 1) + term.offset(terms - 1) + LANES;
    assert!(last < left.len(), "the left operand is too short");
    assert!((terms - 1) * right_stride + vectors * BIN <= right.len(), "the right operand is too short");
    assert!((rows - 1) * out_stride + vectors * BIN <= out.len(), "the product does not fit its slice");
    let [tile_rows, tile_vectors] = TILE.map(|extent| if L::TILE_VECTORS > 1 { extent } else { extent / 2 });
    for vector in (0..vectors).step_by(tile_vectors) {
        for first in (0..rows).step_by(tile_rows) {
            // SAFETY: the asserts above cover every element of the whole product, and this tile is a part of it: two or
            // four rows from a multiple of as many lie in one run of sixteen, hence `stride` apart.
            unsafe {
                let tile = Tile {
                    terms,
                    left: left.as_ptr().add(row.offset(first)),
                    row_stride: row.stride,
                    term,
                    right: right.as_ptr().add(vector * BIN),
                    right_stride,
                    out: out.as_mut_ptr().add(first * out_stride + vector * BIN),
                    out_stride,
                    add: accumulate == Accumulate::Add,
                };
                let extents = [(rows - first).min(tile_rows), (vectors - vector).min(tile_vectors)];
                if separate {
                    tile.extents::<L, true>(lanes, extents);
                } else {
                    tile.extents::<L, false>(lanes, extents);
                }
            }
        }
    }
}

/// One register tile of a product.
#[derive(Clone, Copy)]
struct Tile {
    terms: usize,
    left: *const f32,
    row_stride: usize,
    term: ProductAxis,
    right: *const f32,
    right_stride: usize,
    out: *mut f32,
    out_stride: usize,
    add: bool,
}

impl Tile {
    /// # Safety
    /// As for [`Tile::run`], with this many rows and vectors, at most those of [`TILE`].
    #[inline(always)]
    unsafe fn extents<L: Lanes, const SEPARATE: bool>(self, lanes: L, extents: [usize; 2]) {
        // SAFETY: the extents are those promised by the caller.
        unsafe {
            match extents {
                [4, 2] => self.run::<L, SEPARATE, 4, 2>(lanes),
                [3, 2] => self.run::<L, SEPARATE, 3, 2>(lanes),
                [2, 2] => self.run::<L, SEPARATE, 2, 2>(lanes),
                [_, 2] => self.run::<L, SEPARATE, 1, 2>(lanes),
                [4, _] => self.run::<L, SEPARATE, 4, 1>(lanes),
                [3, _] => self.run::<L, SEPARATE, 3, 1>(lanes),
                [2, _] => self.run::<L, SEPARATE, 2, 1>(lanes),
                [_, _] => self.run::<L, SEPARATE, 1, 1>(lanes),
            }
        }
    }

    /// # Safety
    /// `R` rows, `V` vectors and `terms` terms at the pointers and strides must be valid: `left` and `right` for
    /// reading, `out` for writing and overlapping neither.
    #[inline(always)]
    unsafe fn run<L: Lanes, const SEPARATE: bool, const R: usize, const V: usize>(self, lanes: L) {
        // SAFETY: every address below is one of those that the caller promised.
        unsafe {
            let out_row =
                |row: usize| Bins::at(self.out.wrapping_add(row.wrapping_mul(self.out_stride)), BIN);
            let mut sums = [[[lanes.zero(); 2]; V]; R];
            if self.add {
                for (row, sums) in sums.iter_mut().enumerate() {
                    for (vector, sum) in sums.iter_mut().enumerate() {
                        *sum = out_row(row).load(lanes, vector);
                    }
                }
            }
            let mut right = self.right;
            let mut done = 0;
            while done < self.terms {
                let mut left = self.left.wrapping_add(self.term.offset(done));
                let run = self.term.run.min(self.terms - done);
                for _ in 0..run {
                    let mut b = [[lanes.zero(); 2]; V];
                    for (vector, b) in b.iter_mut().enumerate() {
                        *b = Bins::at(right.cast_mut(), BIN).load(lanes, vector);
                    }
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let at = left.wrapping_add(row.wrapping_mul(self.row_stride));
                        let a = [lanes.splat(*at), lanes.splat(*at.wrapping_add(LANES))];
                        for (sum, &b) in sums.iter_mut().zip(&b) {
                            *sum = multiply_add::<L, SEPARATE>(lanes, a, b, *sum);
                        }
                    }
                    left = left.wrapping_add(self.term.stride);
                    right = right.wrapping_add(self.right_stride);
                }
                done += run;
            }
            for (row, sums) in sums.iter().enumerate() {
                for (vector, &sum) in sums.iter().enumerate() {
                    out_row(row).store(lanes, vector, sum);
                }
            }
        }
    }
}

/// `a b + sum`.
#[inline(always)]
fn multiply_add<L: Lanes, const SEPARATE: bool>(l: L, a: C<L>, b: C<L>, sum: C<L>) -> C<L> {
    if SEPARATE {
        [l.mul_add(a[0], b[0], sum[0]), l.mul_add(a[1], b[1], sum[1])]
    } else {
        let half = [l.mul_add(a[0], b[0], sum[0]), l.mul_add(a[0], b[1], sum[1])];
        [l.neg_mul_add(a[1], b[1], half[0]), l.mul_add(a[1], b[0], half[1])]
    }
}
