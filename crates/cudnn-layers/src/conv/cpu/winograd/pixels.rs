//! Between planes (one channel after the other, as operands lie) and pixels (sixteen channels side by side).

use super::layout::Planes;
use tensor::{
    Accumulate,
    cpu::{
        SharedMut,
        simd::{LANES, Lanes},
    },
};

/// Elements that [`gather`] writes and [`scatter`] reads for planes of `len` elements: whole 16 x 16 blocks.
pub(super) const fn pixels_len(len: usize) -> usize {
    len.next_multiple_of(LANES) * LANES
}

/// `pixels[p][lane] = plane lane [p]`; lanes without a plane become zero. Pixels past the end of a plane hold anything.
#[inline(always)]
pub(super) fn gather<L: Lanes>(lanes: L, from: &[f32], planes: Planes, pixels: &mut [f32]) {
    let Planes { first, stride, count, len } = planes;
    assert!((1..=LANES).contains(&count) && first + (count - 1) * stride + len <= from.len());
    assert!(pixels_len(len) <= pixels.len());
    for p in (0..len).step_by(LANES) {
        let mut rows = [lanes.zero(); LANES];
        // Reading on into the next plane is harmless; only at the end of the operand are there fewer than 16 elements.
        if count == LANES && first + p + 15 * stride + LANES <= from.len() {
            for (lane, row) in rows.iter_mut().enumerate() {
                // SAFETY: the last lane's elements lie inside, as just checked.
                *row = unsafe { lanes.load_ptr(from.as_ptr().add(first + p + lane * stride)) };
            }
        } else {
            for (lane, row) in rows.iter_mut().enumerate().take(count) {
                let at = first + p + lane * stride;
                // SAFETY: `at` lies inside by the first assert; no more elements are read than follow it.
                *row = unsafe { lanes.load_partial(from.as_ptr().add(at), (from.len() - at).min(LANES)) };
            }
        }
        for (pixel, &column) in lanes.transpose(rows).iter().enumerate() {
            // SAFETY: the second assert covers whole blocks of sixteen pixels.
            unsafe { lanes.store_ptr(pixels.as_mut_ptr().add((p + pixel) * LANES), column) };
        }
    }
}

/// `plane lane [p] (+)= pixels[p][lane]`, the adjoint of [`gather`].
///
/// # Safety
/// No other live slice of `to` may share elements with the planes.
#[inline(always)]
pub(super) unsafe fn scatter<L: Lanes>(
    lanes: L,
    pixels: &[f32],
    to: &SharedMut<'_>,
    planes: Planes,
    accumulate: Accumulate,
) {
    let Planes { first, stride, count, len } = planes;
    assert!(count <= LANES && pixels_len(len) <= pixels.len());
    let mut targets: [&mut [f32]; LANES] = Default::default();
    for (lane, target) in targets.iter_mut().enumerate().take(count) {
        let start = first + lane * stride;
        // SAFETY: planes do not overlap each other, nor, as the caller promises, anything else in use.
        *target = unsafe { to.slice(start..start + len) };
    }
    for p in (0..len).step_by(LANES) {
        let mut columns = [lanes.zero(); LANES];
        for (pixel, column) in columns.iter_mut().enumerate() {
            // SAFETY: the assert covers whole blocks of sixteen pixels.
            *column = unsafe { lanes.load_ptr(pixels.as_ptr().add((p + pixel) * LANES)) };
        }
        let rows = lanes.transpose(columns);
        let width = (len - p).min(LANES);
        for (target, &row) in targets.iter_mut().zip(&rows).take(count) {
            // SAFETY: each target has `len` elements, and `p + width` is at most that.
            unsafe {
                let at = target.as_mut_ptr().add(p);
                match (accumulate, width) {
                    (Accumulate::Replace, LANES) => lanes.store_ptr(at, row),
                    (Accumulate::Replace, _) => lanes.store_partial(at, row, width),
                    (Accumulate::Add, _) => {
                        let sum = lanes.add(lanes.load_partial(at, width), row);
                        lanes.store_partial(at, sum, width);
                    }
                }
            }
        }
    }
}
