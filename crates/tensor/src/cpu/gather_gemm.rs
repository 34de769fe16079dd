//! Small matrix products whose left operand is addressed, not stored: the unrolled image of a convolution is nothing but
//! the image at the sums of two offsets, one of the pixel and one of the tap.

use super::simd::{LANES, Lanes, WithLanes, dispatch};
use crate::Accumulate;

/// The most vectors in a row of the right operand and of the product.
pub const MAX_VECTORS: usize = 4;

/// The left operand: element `(row, p)` is `elements[rows[row] + steps[p]]`.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'a> {
    /// The elements.
    pub elements: &'a [f32],
    /// One offset for each row.
    pub rows: &'a [usize],
    /// One offset for each term of the sum.
    pub steps: &'a [usize],
}

/// `c[row][..] (+)= sum over p of a(row, p) * b[p][..]`, where the rows of `b` and `c` are `vectors` times sixteen
/// elements, one after the other.
///
/// The sum over `p` is formed in order from zero, and then added to `c` when accumulating: short sums of a long one, so
/// that the rounding error grows with the square root of their length and of their number, not of the product of both.
///
/// # Panics
/// If `vectors` is not 1 to [`MAX_VECTORS`], or an operand does not fit its slice.
pub fn gather_gemm(a: Gather<'_>, vectors: usize, b: &[f32], c: &mut [f32], accumulate: Accumulate) {
    let width = vectors * LANES;
    let last = |offsets: &[usize]| offsets.iter().copied().fold(0, usize::max);
    assert!(b.len() >= a.steps.len() * width, "the right operand is too short");
    assert!(c.len() >= a.rows.len() * width, "the product does not fit its slice");
    assert!(
        a.rows.is_empty() || a.steps.is_empty() || last(a.rows) + last(a.steps) < a.elements.len(),
        "an offset lies outside the left operand"
    );
    assert!((1..=MAX_VECTORS).contains(&vectors), "{vectors} vectors in a row, not 1 to {MAX_VECTORS}");
    dispatch(Product { a, vectors, b, c, accumulate });
}

/// A product whose operands [`gather_gemm`] has checked.
struct Product<'a> {
    a: Gather<'a>,
    vectors: usize,
    b: &'a [f32],
    c: &'a mut [f32],
    accumulate: Accumulate,
}

impl WithLanes for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        let Self { a, vectors, b, c, accumulate } = self;
        // SAFETY: `gather_gemm` asserted that every offset lies inside `a`, and that `b` and `c` are long enough.
        unsafe {
            match vectors {
                1 => all_tiles::<L, 1>(lanes, a, b, c, accumulate),
                2 => all_tiles::<L, 2>(lanes, a, b, c, accumulate),
                3 => all_tiles::<L, 3>(lanes, a, b, c, accumulate),
                _ => all_tiles::<L, 4>(lanes, a, b, c, accumulate),
            }
        }
    }
}

/// Rows of a register tile with `vectors` vectors: the accumulators, one row of `b` and a broadcast fill the 32 registers
/// of AVX-512.
const fn tile_rows(vectors: usize) -> usize {
    if vectors == 4 { 6 } else { 8 }
}

/// # Safety
/// Every sum of a row's and a step's offset is an element of `a`; `b` has `V` vectors for each step and `c` for each row.
#[inline(always)]
unsafe fn all_tiles<L: Lanes, const V: usize>(
    lanes: L,
    a: Gather<'_>,
    b: &[f32],
    c: &mut [f32],
    accumulate: Accumulate,
) {
    let add = accumulate == Accumulate::Add;
    // Tiles of nearly equal height: a last tile of one row would leave the multipliers half idle.
    let tiles = a.rows.len().div_ceil(tile_rows(V));
    let mut row = 0;
    for tile in 1..=tiles {
        let end = a.rows.len() * tile / tiles;
        let rows = &a.rows[row..end];
        let (left, c) = (a.elements.as_ptr(), c[row * V * LANES..].as_mut_ptr());
        // SAFETY: `rows` has the number of offsets of the arm, at most `tile_rows`; the rest is the caller's promise.
        unsafe {
            match rows.len() {
                8 => tile_of::<L, 8, V>(lanes, left, rows, a.steps, b, c, add),
                7 => tile_of::<L, 7, V>(lanes, left, rows, a.steps, b, c, add),
                6 => tile_of::<L, 6, V>(lanes, left, rows, a.steps, b, c, add),
                5 => tile_of::<L, 5, V>(lanes, left, rows, a.steps, b, c, add),
                4 => tile_of::<L, 4, V>(lanes, left, rows, a.steps, b, c, add),
                3 => tile_of::<L, 3, V>(lanes, left, rows, a.steps, b, c, add),
                2 => tile_of::<L, 2, V>(lanes, left, rows, a.steps, b, c, add),
                _ => tile_of::<L, 1, V>(lanes, left, rows, a.steps, b, c, add),
            }
        }
        row = end;
    }
}

/// # Safety
/// As for [`all_tiles`], with exactly `R` rows, `c` pointing to the first.
#[inline(always)]
unsafe fn tile_of<L: Lanes, const R: usize, const V: usize>(
    lanes: L,
    a: *const f32,
    rows: &[usize],
    steps: &[usize],
    b: &[f32],
    c: *mut f32,
    add: bool,
) {
    // SAFETY: every address below is one of those that the caller promised.
    unsafe {
        let rows: [*const f32; R] = std::array::from_fn(|row| a.add(*rows.get_unchecked(row)));
        let mut sums = [[lanes.zero(); V]; R];
        let mut b = b.as_ptr();
        for &step in steps {
            let right: [L::V; V] = std::array::from_fn(|vector| lanes.load_ptr(b.add(vector * LANES)));
            for (row, sums) in rows.iter().zip(&mut sums) {
                let left = lanes.splat(*row.add(step));
                for (sum, &right) in sums.iter_mut().zip(&right) {
                    *sum = lanes.mul_add(left, right, *sum);
                }
            }
            b = b.add(V * LANES);
        }
        for (index, &sum) in sums.as_flattened().iter().enumerate() {
            let at = c.add(index * LANES);
            lanes.store_ptr(at, if add { lanes.add(lanes.load_ptr(at), sum) } else { sum });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small integers: exact whatever the instruction set.
    #[test]
    fn every_tile_shape_is_exact() {
        let elements: Vec<f32> = (0..500).map(|i| (i % 7) as f32 - 3.0).collect();
        let steps: Vec<usize> = (0..11).map(|i| i * 37 % 101).collect();
        let b: Vec<f32> = (0..steps.len() * MAX_VECTORS * LANES).map(|i| (i % 5) as f32 - 2.0).collect();
        for (vectors, m) in (1..=MAX_VECTORS).flat_map(|vectors| (0..20).map(move |m| (vectors, m))) {
            let rows: Vec<usize> = (0..m).map(|i| i * 53 % 307).collect();
            for (accumulate, start) in [(Accumulate::Replace, 0.0), (Accumulate::Add, 4.0)] {
                let width = vectors * LANES;
                let mut c = vec![4.0; m * width + 1];
                let a = Gather { elements: &elements, rows: &rows, steps: &steps };
                gather_gemm(a, vectors, &b, &mut c, accumulate);
                for (row, col) in (0..m).flat_map(|row| (0..width).map(move |col| (row, col))) {
                    let dot = |p: usize| elements[rows[row] + steps[p]] * b[p * width + col];
                    let expected = start + (0..steps.len()).map(dot).sum::<f32>();
                    assert_eq!(c[row * width + col], expected, "{m} rows of {vectors} at {row},{col}");
                }
                assert_eq!(c[m * width], 4.0, "what follows the product stays untouched");
            }
        }
    }

    #[test]
    #[should_panic(expected = "outside the left operand")]
    fn an_offset_outside_is_refused() {
        let a = Gather { elements: &[0.0; 8], rows: &[0, 5], steps: &[1, 3] };
        gather_gemm(a, 1, &[0.0; 32], &mut [0.0; 32], Accumulate::Replace);
    }
}
