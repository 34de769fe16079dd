//! Matrix products of one frequency: complex, sixteen columns to a vector.

use super::complex::BIN;
use tensor::{
    Accumulate,
    cpu::simd::{LANES, Lanes},
};

/// Rows of a register tile: 8 complex accumulators, one complex vector of the right operand and a broadcast.
const TILE_ROWS: usize = 8;

/// Where along one axis of the left operand the real parts lie; the imaginary part is [`LANES`] further.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    stride: usize,
    run: usize,
    jump: usize,
}

impl Axis {
    /// Channels: runs of sixteen.
    pub(super) const CHANNELS: Self = Self { stride: 1, run: LANES, jump: BIN };

    /// Equally far apart.
    pub(super) fn every(stride: usize) -> Self {
        Self { stride, run: usize::MAX, jump: 0 }
    }

    fn offset(self, index: usize) -> usize {
        index / self.run * self.jump + index % self.run * self.stride
    }
}

/// `out[row][col] (+)= sum over terms of left(row, term) * right[term][col]`.
pub(super) struct Product<'a> {
    /// Rows, terms, and columns in vectors.
    pub(super) extents: [usize; 3],
    /// The left operand: element (row, term) lies at the sum of both axes' offsets.
    pub(super) left: &'a [f32],
    pub(super) row: Axis,
    pub(super) term: Axis,
    /// The right operand, with the distance between terms.
    pub(super) right: (&'a [f32], usize),
    /// The result, with the distance between rows.
    pub(super) out: (&'a mut [f32], usize),
    pub(super) accumulate: Accumulate,
}

impl Product<'_> {
    /// Multiplies complex values, or with `separate` real and imaginary parts each on their own.
    ///
    /// # Panics
    /// If an operand does not fit its slice.
    #[inline(always)]
    pub(super) fn run<L: Lanes>(self, lanes: L, separate: bool) {
        let [rows, terms, vectors] = self.extents;
        if rows * terms * vectors == 0 {
            return;
        }
        let (right, right_stride) = self.right;
        let (out, out_stride) = self.out;
        let last = self.row.offset(rows - 1) + self.term.offset(terms - 1) + LANES;
        assert!(last < self.left.len(), "the left operand is too short");
        assert!((terms - 1) * right_stride + vectors * BIN <= right.len(), "the right operand is too short");
        assert!((rows - 1) * out_stride + vectors * BIN <= out.len(), "the product does not fit its slice");
        for vector in 0..vectors {
            for first in (0..rows).step_by(TILE_ROWS) {
                // SAFETY: the asserts above cover every element of the whole product, and this tile is a part of it:
                // eight rows from a multiple of eight lie in one run of sixteen, hence `stride` apart.
                unsafe {
                    let tile = Tile {
                        terms,
                        left: self.left.as_ptr().add(self.row.offset(first)),
                        row_stride: self.row.stride,
                        term: self.term,
                        right: right.as_ptr().add(vector * BIN),
                        right_stride,
                        out: out.as_mut_ptr().add(first * out_stride + vector * BIN),
                        out_stride,
                        add: self.accumulate == Accumulate::Add,
                    };
                    let rows = (rows - first).min(TILE_ROWS);
                    if separate {
                        tile.rows::<L, true>(lanes, rows)
                    } else {
                        tile.rows::<L, false>(lanes, rows)
                    }
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
    term: Axis,
    right: *const f32,
    right_stride: usize,
    out: *mut f32,
    out_stride: usize,
    add: bool,
}

impl Tile {
    /// # Safety
    /// As for [`Tile::run`], with `rows` rows, at most [`TILE_ROWS`].
    #[inline(always)]
    unsafe fn rows<L: Lanes, const SEPARATE: bool>(self, lanes: L, rows: usize) {
        // SAFETY: the number of rows is the one promised by the caller.
        unsafe {
            match rows {
                8 => self.run::<L, SEPARATE, 8>(lanes),
                7 => self.run::<L, SEPARATE, 7>(lanes),
                6 => self.run::<L, SEPARATE, 6>(lanes),
                5 => self.run::<L, SEPARATE, 5>(lanes),
                4 => self.run::<L, SEPARATE, 4>(lanes),
                3 => self.run::<L, SEPARATE, 3>(lanes),
                2 => self.run::<L, SEPARATE, 2>(lanes),
                _ => self.run::<L, SEPARATE, 1>(lanes),
            }
        }
    }

    /// # Safety
    /// `R` rows and `terms` terms at the pointers and strides must be valid: `left` and `right` for reading, `out` for
    /// writing and overlapping neither.
    #[inline(always)]
    unsafe fn run<L: Lanes, const SEPARATE: bool, const R: usize>(self, lanes: L) {
        // SAFETY: every address below is one of those that the caller promised.
        unsafe {
            let mut sums = [[lanes.zero(); 2]; R];
            if self.add {
                for (row, sum) in sums.iter_mut().enumerate() {
                    let at = self.out.add(row * self.out_stride);
                    *sum = [lanes.load_ptr(at), lanes.load_ptr(at.add(LANES))];
                }
            }
            let mut right = self.right;
            let mut done = 0;
            while done < self.terms {
                let mut left = self.left.add(self.term.offset(done));
                let run = self.term.run.min(self.terms - done);
                for _ in 0..run {
                    let (re, im) = (lanes.load_ptr(right), lanes.load_ptr(right.add(LANES)));
                    for (row, sum) in sums.iter_mut().enumerate() {
                        let at = left.add(row * self.row_stride);
                        let (a, b) = (lanes.splat(*at), lanes.splat(*at.add(LANES)));
                        if SEPARATE {
                            *sum = [lanes.mul_add(a, re, sum[0]), lanes.mul_add(b, im, sum[1])];
                        } else {
                            let partial = [lanes.mul_add(a, re, sum[0]), lanes.mul_add(a, im, sum[1])];
                            *sum = [lanes.neg_mul_add(b, im, partial[0]), lanes.mul_add(b, re, partial[1])];
                        }
                    }
                    left = left.wrapping_add(self.term.stride);
                    right = right.wrapping_add(self.right_stride);
                }
                done += run;
            }
            for (row, &[re, im]) in sums.iter().enumerate() {
                let at = self.out.add(row * self.out_stride);
                lanes.store_ptr(at, re);
                lanes.store_ptr(at.add(LANES), im);
            }
        }
    }
}
