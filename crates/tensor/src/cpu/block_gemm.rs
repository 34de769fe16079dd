//! Small matrix products on operands that already lie in cache, without packing.
//!
//! This is the inner loop of the convolution algorithms. They choose the layout of their own scratch, so the packing pass
//! of a general product would only copy what is already in order. It is compiled once, here, for every instruction set and
//! tile: inlined into its callers it would dominate their compile time and gain nothing measurable.

use super::simd::{LANES, Lanes, WithLanes, dispatch};
use crate::Accumulate;

/// Rows and vectors of a register tile: 8 x 3 accumulators, 3 vectors of `b` and a broadcast fill the 32 registers of
/// AVX-512.
const TILE_ROWS: usize = 8;
const TILE_VECTORS: usize = 3;

/// The left operand: element `(row, p)` lies at `row * row_stride + p * step`.
#[derive(Clone, Copy, Debug)]
pub struct Left<'a> {
    /// The elements.
    pub elements: &'a [f32],
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance between consecutive terms of the sum.
    pub step: usize,
}

/// `c[row][col] (+)= sum over p of a(row, p) * b[p][col]` for `m` rows, `n` columns and `k` terms.
///
/// Rows of `b` lie `b_stride` apart and rows of `c` lie `c_stride` apart; `n` is a multiple of [`LANES`]. Each output is
/// summed in the order of `p`, whatever the blocking.
///
/// # Panics
/// If `n` is no multiple of [`LANES`] or an operand does not fit its slice.
pub fn block_gemm(
    [m, n, k]: [usize; 3],
    a: Left<'_>,
    (b, b_stride): (&[f32], usize),
    c: (&mut [f32], usize),
    accumulate: Accumulate,
) {
    block_gemm_ahead([m, n, k], a, (b, b_stride), c, accumulate, &[]);
}

/// As [`block_gemm`], fetching `next`, which the following product will read, into the cache meanwhile.
///
/// A right operand that comes from the last-level cache or from memory is read by the first rows at that memory's speed;
/// fetched one product earlier, it arrives during the arithmetic. Worth it if the product has few rows.
///
/// # Panics
/// As [`block_gemm`].
pub fn block_gemm_ahead(
    [m, n, k]: [usize; 3],
    a: Left<'_>,
    (b, b_stride): (&[f32], usize),
    (c, c_stride): (&mut [f32], usize),
    accumulate: Accumulate,
    next: &[f32],
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(n.is_multiple_of(LANES), "{n} columns are no multiple of {LANES}");
    assert!((m - 1) * c_stride + n <= c.len(), "the product does not fit its slice");
    if k > 0 {
        assert!(
            (m - 1) * a.row_stride + (k - 1) * a.step < a.elements.len(),
            "the left operand is too short"
        );
        assert!((k - 1) * b_stride + n <= b.len(), "the right operand is too short");
    }
    let whole = Tile {
        k,
        a: a.elements.as_ptr(),
        a_row: a.row_stride,
        a_step: a.step,
        b: b.as_ptr(),
        b_stride,
        c: c.as_mut_ptr(),
        c_stride,
        add: accumulate == Accumulate::Add,
        ahead: b.as_ptr(),
    };
    // The asserts above cover every element of the whole product, which is what `AllTiles` demands.
    dispatch(AllTiles { m, n, whole, next });
}

/// A product of `m` rows and `n` columns, given as the tile that it would be if registers were endless. Whoever makes one
/// promises that all its elements are valid, as in [`Tile::run`].
struct AllTiles<'a> {
    m: usize,
    n: usize,
    whole: Tile,
    next: &'a [f32],
}

impl WithLanes for AllTiles<'_> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        let Self { m, n, whole, next } = self;
        // One line for each term; where nothing is left to fetch, what is in the cache already.
        let mut ahead = next.chunks(whole.k.max(1) * LANES);
        for col in (0..n).step_by(TILE_VECTORS * LANES) {
            let vectors = ((n - col) / LANES).min(TILE_VECTORS);
            for row in (0..m).step_by(TILE_ROWS) {
                let rows = (m - row).min(TILE_ROWS);
                // SAFETY: this tile is a part of the whole, all of whose elements are valid.
                unsafe {
                    let tile = Tile {
                        a: whole.a.add(row * whole.a_row),
                        b: whole.b.add(col),
                        c: whole.c.add(row * whole.c_stride + col),
                        ahead: ahead.next().map_or(whole.b, <[f32]>::as_ptr),
                        ..whole
                    };
                    match vectors {
                        3 => tile.run_rows::<L, 3>(lanes, rows),
                        2 => tile.run_rows::<L, 2>(lanes, rows),
                        _ => tile.run_rows::<L, 1>(lanes, rows),
                    }
                }
            }
        }
    }
}

/// One register tile of a product.
#[derive(Clone, Copy)]
struct Tile {
    k: usize,
    a: *const f32,
    a_row: usize,
    a_step: usize,
    b: *const f32,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    add: bool,
    ahead: *const f32,
}

impl Tile {
    /// # Safety
    /// As for [`Tile::run`], with `rows` rows, at most [`TILE_ROWS`].
    #[inline(always)]
    unsafe fn run_rows<L: Lanes, const V: usize>(self, lanes: L, rows: usize) {
        // SAFETY: the number of rows is the one promised by the caller.
        unsafe {
            match rows {
                8 => self.run::<L, 8, V>(lanes),
                7 => self.run::<L, 7, V>(lanes),
                6 => self.run::<L, 6, V>(lanes),
                5 => self.run::<L, 5, V>(lanes),
                4 => self.run::<L, 4, V>(lanes),
                3 => self.run::<L, 3, V>(lanes),
                2 => self.run::<L, 2, V>(lanes),
                _ => self.run::<L, 1, V>(lanes),
            }
        }
    }

    /// # Safety
    /// `R` rows and `V` vectors at the pointers, with `k` terms at the given strides, must be valid: `a` and `b` for
    /// reading, `c` for writing and overlapping neither.
    #[inline(always)]
    unsafe fn run<L: Lanes, const R: usize, const V: usize>(self, lanes: L) {
        // SAFETY: every address below is one of those that the caller promised.
        unsafe {
            let mut sums = [[lanes.zero(); V]; R];
            if self.add {
                for (row, sums) in sums.iter_mut().enumerate() {
                    for (vector, sum) in sums.iter_mut().enumerate() {
                        *sum = lanes.load_ptr(self.c.add(row * self.c_stride + vector * LANES));
                    }
                }
            }
            let (mut a, mut b, mut ahead) = (self.a, self.b, self.ahead);
            // Rows of the next tile, if rows are dense; fetching anything else does no harm.
            let mut below = self.a.wrapping_add(R * self.a_row);
            for _ in 0..self.k {
                lanes.prefetch(ahead);
                lanes.prefetch(below);
                let right: [L::V; V] = std::array::from_fn(|vector| lanes.load_ptr(b.add(vector * LANES)));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let left = lanes.splat(*a.add(row * self.a_row));
                    for (sum, &right) in sums.iter_mut().zip(&right) {
                        *sum = lanes.mul_add(left, right, *sum);
                    }
                }
                a = a.wrapping_add(self.a_step);
                b = b.wrapping_add(self.b_stride);
                ahead = ahead.wrapping_add(LANES);
                below = below.wrapping_add(R);
            }
            for (row, sums) in sums.iter().enumerate() {
                for (vector, &sum) in sums.iter().enumerate() {
                    lanes.store_ptr(self.c.add(row * self.c_stride + vector * LANES), sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small integers: exact whatever the instruction set.
    #[test]
    fn every_tile_shape_is_exact() {
        for (m, n, k) in [(1, 16, 1), (7, 48, 5), (8, 64, 9), (9, 80, 3), (21, 112, 2), (3, 32, 0)] {
            let (b_stride, c_stride) = (n + 3, n + 5);
            let a: Vec<f32> = (0..m * k.max(1)).map(|i| (i % 7) as f32 - 3.0).collect();
            let b: Vec<f32> = (0..k.max(1) * b_stride).map(|i| (i % 5) as f32 - 2.0).collect();
            // The left operand once row by row and once column by column.
            for (row_stride, step) in [(k, 1), (1, m)] {
                for (accumulate, start) in [(Accumulate::Replace, 0.0), (Accumulate::Add, 4.0)] {
                    let mut c = vec![4.0; m * c_stride];
                    let left = Left { elements: &a, row_stride, step };
                    block_gemm([m, n, k], left, (&b, b_stride), (&mut c, c_stride), accumulate);
                    for (row, col) in (0..m).flat_map(|row| (0..c_stride).map(move |col| (row, col))) {
                        let dot = |p: usize| a[row * row_stride + p * step] * b[p * b_stride + col];
                        let expected = if col < n { start + (0..k).map(dot).sum::<f32>() } else { 4.0 };
                        assert_eq!(c[row * c_stride + col], expected, "{m}x{n}x{k} at {row},{col}");
                    }
                }
            }
        }
    }
}
