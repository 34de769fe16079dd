//! Between planes (one channel after the other, as operands lie) and pixels (sixteen channels side by side).

use crate::conv::cpu::planes::{Signals, store};
use tensor::Accumulate;
use tensor::cpu::{LANES, Lanes, SharedMut};

/// Elements that [`gather`] writes and [`scatter`] reads for planes of `len` elements: whole 16 x 16 blocks.
pub(super) const fn pixels_len(len: usize) -> usize {
    len.next_multiple_of(LANES) * LANES
}

/// `pixels[p][lane] = plane lane [p]` for planes of `len` elements; lanes without a plane become zero. Pixels past the
/// end of a plane hold anything.
#[inline(always)]
pub(super) fn gather<L: Lanes>(lanes: L, from: &[f32], planes: Signals, len: usize, pixels: &mut [f32]) {
    for p in (0..len).step_by(LANES) {
        // Reading on into the next plane is harmless; only at the end of the operand are there fewer than 16 elements.
        let from = &from[p..];
        let readable = from.len().saturating_sub((planes.count - 1) * planes.stride).min(LANES);
        for (pixel, &column) in planes.gather(lanes, from, readable).iter().enumerate() {
            store(lanes, pixels, (p + pixel) * LANES, column);
        }
    }
}

/// `plane lane [p] (+)= pixels[p][lane]` for planes of `len` elements from `first` on, the adjoint of [`gather`].
///
/// # Safety
/// No other live slice of `to` may share elements with the planes.
#[inline(always)]
pub(super) unsafe fn scatter<L: Lanes>(
    lanes: L,
    pixels: &[f32],
    to: &SharedMut<'_>,
    (first, planes, len): (usize, Signals, usize),
    accumulate: Accumulate,
) {
    assert!(pixels_len(len) <= pixels.len() && first + (planes.count - 1) * planes.stride + len <= to.len());
    for p in (0..len).step_by(LANES) {
        let mut columns = [lanes.zero(); LANES];
        for (pixel, column) in columns.iter_mut().enumerate() {
            // SAFETY: the assert covers whole blocks of sixteen pixels.
            *column = unsafe { lanes.load_ptr(pixels.as_ptr().add((p + pixel) * LANES)) };
        }
        // SAFETY: the assert covers the last element of the last plane; the caller promises that they are ours.
        unsafe {
            let to = (to.as_ptr().add(first + p), (len - p).min(LANES));
            planes.scatter_ptr(lanes, columns, to, 1.0, accumulate);
        }
    }
}
