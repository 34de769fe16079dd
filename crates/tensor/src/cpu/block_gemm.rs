//! Small matrix products on operands that already lie in cache, without packing.
//!
//! This is the inner loop of the convolution algorithms. They choose the layout of their own scratch, so the packing
//! pass of a general product would only copy what is already in order. The left operand may be addressed and not
//! stored: the unrolled image of a convolution is nothing but the image at the sums of two offsets, one of the pixel
//! and one of the tap. It is compiled once, here, for every instruction set and tile: inlined into its callers it would
//! dominate their compile time and gain nothing measurable.

use super::gemm::check;
use super::simd::{LANES, Lanes, WithLanes, dispatch};
use crate::Accumulate;

/// The most vectors in a register tile, on AVX-512: there 6 rows of sums, one row of `b` and a broadcast fill the 32
/// registers; with fewer vectors, 8 rows.
pub const MAX_VECTORS: usize = 4;

/// The left operand.
#[derive(Clone, Copy, Debug)]
pub enum Left<'a> {
    /// Rows and terms lie equally far apart. The sum over the terms continues from the old value when accumulating.
    Strided {
        /// The elements.
        elements: &'a [f32],
        /// Distance between rows.
        row_stride: usize,
        /// Distance between consecutive terms of the sum.
        step: usize,
    },
    /// Element `(row, p)` is `elements[rows[row] + steps[p]]`. The sum is formed from zero, and then added to the old
    /// value when accumulating: short sums of a long one, so that the rounding error grows with the square root of
    /// their length and of their number, not of the product of both.
    Gathered {
        /// The elements.
        elements: &'a [f32],
        /// One offset for each row.
        rows: &'a [usize],
        /// One offset for each term of the sum.
        steps: &'a [usize],
    },
}

/// `c[row][col] (+)= sum over p of a(row, p) * b[p][col]` for `m` rows, `n` columns and `k` terms.
///
/// Rows of `b` and of `c` follow each other; `n` is a multiple of [`LANES`]. Each output is summed in the order of `p`,
/// whatever the blocking.
///
/// `next`, if there is anything, is what the following product will read, and is fetched into the cache meanwhile. A
/// right operand that comes from the last-level cache or from memory is read by the first rows at that memory's speed;
/// fetched one product earlier, it arrives during the arithmetic. Worth it if the product has few rows.
///
/// # Panics
/// If `n` is no multiple of [`LANES`] or an operand does not fit its slice.
pub fn block_gemm(
    [m, n, k]: [usize; 3],
    a: Left<'_>,
    b: &[f32],
    c: &mut [f32],
    accumulate: Accumulate,
    next: &[f32],
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(n.is_multiple_of(LANES), "{n} columns are no multiple of {LANES}");
    check("the product", c, [m, n], [n, 1]);
    check("the right operand", b, [k, n], [n, 1]);
    let (b, c, add) = (b.as_ptr(), c.as_mut_ptr(), accumulate == Accumulate::Add);
    // The asserts above and below cover every element of the whole product, which is what `Product` demands.
    let extents = [m, n, k];
    match a {
        Left::Strided { elements, row_stride, step } => {
            check("the left operand", elements, [m, k], [row_stride, step]);
            let (left, strides, offsets) = (elements.as_ptr(), [row_stride, step], [&[][..]; 2]);
            dispatch(Product::<true> { extents, left, strides, offsets, b, c, add, next });
        }
        Left::Gathered { elements, rows, steps } => {
            let last = |offsets: &[usize]| offsets.iter().copied().fold(0, usize::max);
            assert_eq!([rows.len(), steps.len()], [m, k], "offsets of {m} rows and {k} terms");
            let inside =
                last(rows).checked_add(last(steps)).is_some_and(|last| k == 0 || last < elements.len());
            assert!(inside, "an offset lies outside the left operand");
            let (left, strides, offsets) = (elements.as_ptr(), [0; 2], [rows, steps]);
            dispatch(Product::<false> { extents, left, strides, offsets, b, c, add, next });
        }
    }
}

/// A product whose elements are all valid at these places: those of `left` and `b` for reading, those of `c` for
/// writing and overlapping neither. If `STRIDED`, sums continue from the old values, and what comes next is fetched.
#[derive(Clone, Copy)]
struct Product<'a, const STRIDED: bool> {
    /// Rows, columns and terms.
    extents: [usize; 3],
    left: *const f32,
    /// Distances of rows and of terms of the left operand, or else the offset of each.
    strides: [usize; 2],
    offsets: [&'a [usize]; 2],
    b: *const f32,
    c: *mut f32,
    add: bool,
    next: &'a [f32],
}

impl<const STRIDED: bool> WithLanes for Product<'_, STRIDED> {
    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        let [m, n, k] = self.extents;
        // One line for each term; where nothing is left to fetch, what is in the cache already.
        let mut next = self.next.chunks(k.max(1) * LANES);
        let mut col = 0;
        while col < n {
            let vectors = match (n - col) / LANES {
                MAX_VECTORS => MAX_VECTORS,
                more => more.min(MAX_VECTORS - 1),
            };
            let vectors = vectors.min(L::TILE_VECTORS);
            // Tiles of nearly equal height: a last tile of one row would leave the multipliers half idle.
            let tiles = m.div_ceil(if vectors == L::TILE_VECTORS { 6 } else { 8 });
            for tile in 0..tiles {
                let rows = [m * tile / tiles, m * (tile + 1) / tiles];
                let ahead = next.next().map_or(self.b, <[f32]>::as_ptr);
                // SAFETY: this tile is a part of the product, all of whose elements are valid.
                unsafe {
                    match vectors {
                        4 => self.rows::<L, 4>(lanes, rows, col, ahead),
                        3 => self.rows::<L, 3>(lanes, rows, col, ahead),
                        2 => self.rows::<L, 2>(lanes, rows, col, ahead),
                        _ => self.rows::<L, 1>(lanes, rows, col, ahead),
                    }
                }
            }
            col += vectors * LANES;
        }
    }
}

impl<const STRIDED: bool> Product<'_, STRIDED> {
    /// The offset of a row, which exists.
    #[inline(always)]
    fn row(self, row: usize) -> usize {
        if STRIDED { row * self.strides[0] } else { self.offsets[0][row] }
    }

    /// The offset of a term.
    ///
    /// # Safety
    /// It exists.
    #[inline(always)]
    unsafe fn term(self, p: usize) -> usize {
        // SAFETY: the caller's promise.
        if STRIDED { p * self.strides[1] } else { unsafe { *self.offsets[1].get_unchecked(p) } }
    }

    /// # Safety
    /// As for [`Product::tile`], with the rows from the first to the last of `rows`, at most 8.
    #[inline(always)]
    unsafe fn rows<L: Lanes, const V: usize>(
        self,
        lanes: L,
        [row, end]: [usize; 2],
        col: usize,
        ahead: *const f32,
    ) {
        // SAFETY: the number of rows is the one promised by the caller.
        unsafe {
            match end - row {
                8 => self.tile::<L, 8, V>(lanes, row, col, ahead),
                7 => self.tile::<L, 7, V>(lanes, row, col, ahead),
                6 => self.tile::<L, 6, V>(lanes, row, col, ahead),
                5 => self.tile::<L, 5, V>(lanes, row, col, ahead),
                4 => self.tile::<L, 4, V>(lanes, row, col, ahead),
                3 => self.tile::<L, 3, V>(lanes, row, col, ahead),
                2 => self.tile::<L, 2, V>(lanes, row, col, ahead),
                _ => self.tile::<L, 1, V>(lanes, row, col, ahead),
            }
        }
    }

    /// A register tile of the product: `R` rows from `row` and `V` vectors from column `col` on.
    ///
    /// # Safety
    /// It lies inside the product.
    #[inline(always)]
    unsafe fn tile<L: Lanes, const R: usize, const V: usize>(
        self,
        lanes: L,
        row: usize,
        col: usize,
        mut ahead: *const f32,
    ) {
        let Self { extents: [_, n, k], left, b, c, add, .. } = self;
        // SAFETY: every address below is one of those that the caller promised.
        unsafe {
            let (mut b, c) = (b.add(col), c.add(row * n + col));
            let rows: [*const f32; R] = std::array::from_fn(|i| left.add(self.row(row + i)));
            let mut sums = [[lanes.zero(); V]; R];
            if add && STRIDED {
                // Loops that the compiler unrolls: the sums are to stay in registers.
                for (i, sums) in sums.iter_mut().enumerate() {
                    for (vector, sum) in sums.iter_mut().enumerate() {
                        *sum = lanes.load_ptr(c.add(i * n + vector * LANES));
                    }
                }
            }
            for p in 0..k {
                if STRIDED {
                    lanes.prefetch(ahead);
                    ahead = ahead.wrapping_add(LANES);
                }
                let (right, at): ([L::V; V], usize) =
                    (std::array::from_fn(|vector| lanes.load_ptr(b.add(vector * LANES))), self.term(p));
                for (row, sums) in rows.iter().zip(&mut sums) {
                    let left = lanes.splat(*row.add(at));
                    for (sum, &right) in sums.iter_mut().zip(&right) {
                        *sum = lanes.mul_add(left, right, *sum);
                    }
                }
                b = b.wrapping_add(n);
            }
            for (i, sums) in sums.iter().enumerate() {
                for (vector, &sum) in sums.iter().enumerate() {
                    let at = c.add(i * n + vector * LANES);
                    let old = add && !STRIDED;
                    lanes.store_ptr(at, if old { lanes.add(lanes.load_ptr(at), sum) } else { sum });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a product of small integers, exact whatever the instruction set; `at(row, p)` is where the left element
    /// lies.
    fn check([m, n, k]: [usize; 3], left: Left<'_>, elements: &[f32], at: impl Fn(usize, usize) -> usize) {
        let b: Vec<f32> = (0..k.max(1) * n).map(|i| (i % 5) as f32 - 2.0).collect();
        for (accumulate, start) in [(Accumulate::Replace, 0.0), (Accumulate::Add, 4.0)] {
            let mut c = vec![4.0; m * n + 5];
            block_gemm([m, n, k], left, &b, &mut c, accumulate, &[]);
            for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
                let dot = |p: usize| elements[at(row, p)] * b[p * n + col];
                let expected = start + (0..k).map(dot).sum::<f32>();
                assert_eq!(c[row * n + col], expected, "{m}x{n}x{k} at {row},{col}");
            }
            assert_eq!(c[m * n..], [4.0; 5], "what lies behind the product stays untouched");
        }
    }

    #[test]
    fn every_tile_shape_is_exact() {
        for (m, n, k) in [(1, 16, 1), (7, 48, 5), (8, 64, 9), (9, 80, 3), (21, 112, 2), (3, 32, 0)] {
            let elements: Vec<f32> = (0..m * k.max(1)).map(|i| (i % 7) as f32 - 3.0).collect();
            // Once row by row and once column by column.
            for (row_stride, step) in [(k, 1), (1, m)] {
                let left = Left::Strided { elements: &elements, row_stride, step };
                check([m, n, k], left, &elements, |row, p| row * row_stride + p * step);
            }
        }
    }

    #[test]
    fn every_tile_shape_of_gathered_elements_is_exact() {
        let elements: Vec<f32> = (0..500).map(|i| (i % 7) as f32 - 3.0).collect();
        let steps: Vec<usize> = (0..11).map(|i| i * 37 % 101).collect();
        for (vectors, m) in (1..=MAX_VECTORS).flat_map(|vectors| (0..20).map(move |m| (vectors, m))) {
            let rows: Vec<usize> = (0..m).map(|i| i * 53 % 307).collect();
            let left = Left::Gathered { elements: &elements, rows: &rows, steps: &steps };
            check([m, vectors * LANES, steps.len()], left, &elements, |row, p| rows[row] + steps[p]);
        }
    }

    #[test]
    #[should_panic(expected = "outside the left operand")]
    fn an_offset_outside_is_refused() {
        let left = Left::Gathered { elements: &[0.0; 8], rows: &[0, 5], steps: &[1, 3] };
        block_gemm([2, 16, 2], left, &[0.0; 32], &mut [0.0; 32], Accumulate::Replace, &[]);
    }
}
