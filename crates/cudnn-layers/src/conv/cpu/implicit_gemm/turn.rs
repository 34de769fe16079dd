//! Turning matrices: channels lie far apart in images and filters, and side by side in the products' operands.

use tensor::cpu::simd::{LANES, Lanes};

/// The transpose of `rows` rows, `stride` apart, of `cols` elements (both at most sixteen; what is missing is zero):
/// lane `i` of vector `j` is `from[i * stride + j]`.
///
/// # Panics
/// If that does not fit `from`.
#[inline(always)]
pub(super) fn load_turned<L: Lanes>(
    lanes: L,
    from: &[f32],
    stride: usize,
    rows: usize,
    cols: usize,
) -> [L::V; LANES] {
    assert!(0 < rows && rows <= LANES && cols <= LANES && (rows - 1) * stride + cols <= from.len());
    let from = from.as_ptr();
    let mut block = [lanes.zero(); LANES];
    if rows == LANES && cols == LANES {
        for (row, vector) in block.iter_mut().enumerate() {
            // SAFETY: the assert shows that all rows lie in `from`.
            *vector = unsafe { lanes.load_ptr(from.add(row * stride)) };
        }
    } else {
        for (row, vector) in block.iter_mut().enumerate().take(rows) {
            // SAFETY: as above; only the first `cols` elements are read.
            *vector = unsafe { lanes.load_partial(from.add(row * stride), cols) };
        }
    }
    lanes.transpose(block)
}

/// Stores vector `v` at `to[at..]`.
///
/// # Panics
/// If it does not fit.
#[inline(always)]
pub(super) fn store<L: Lanes>(lanes: L, to: &mut [f32], at: usize, v: L::V) {
    let to = &mut to[at..at + LANES];
    // SAFETY: the slice has sixteen elements.
    unsafe { lanes.store_ptr(to.as_mut_ptr(), v) };
}

/// Turns sixteen columns of `from`, whose rows lie `stride` apart, into sixteen rows of `to`, which lie `to_stride` apart
/// and have room for `rows` rounded up to sixteen.
#[inline(always)]
pub(super) fn turn_columns<L: Lanes>(
    lanes: L,
    from: &[f32],
    stride: usize,
    rows: usize,
    to: &mut [f32],
    to_stride: usize,
) {
    for row in (0..rows).step_by(LANES) {
        let block = load_turned(lanes, &from[row * stride..], stride, LANES.min(rows - row), LANES);
        for (col, v) in block.into_iter().enumerate() {
            store(lanes, to, col * to_stride + row, v);
        }
    }
}
