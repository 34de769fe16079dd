//! Between operands, where one channel's values are neighbours, and vectors ("pixels") with a channel in each lane.

use tensor::Accumulate;
use tensor::cpu::{LANES, Lanes, SharedMut};

/// Elements of the pixels of signals of `len` elements: whole 16 x 16 blocks.
pub(super) const fn pixels_len(len: usize) -> usize {
    len.next_multiple_of(LANES) * LANES
}

/// Up to sixteen signals (planes of channels, filters): their first elements lie `stride` apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signals {
    pub(super) count: usize,
    pub(super) stride: usize,
}

impl Signals {
    /// The first `len` (at most sixteen) elements of every signal, which begin at `from`: lane `i` of vector `j` is
    /// `from[i * stride + j]`, or zero where there is no signal.
    #[inline(always)]
    pub(super) fn gather<L: Lanes>(self, lanes: L, from: &[f32], len: usize) -> [L::V; LANES] {
        assert!(len <= LANES && (1..=LANES).contains(&self.count), "{len} values of {} signals", self.count);
        let needed = (self.count - 1) * self.stride + len;
        assert!(needed <= from.len(), "{needed} elements in a slice of {}", from.len());
        let from = from.as_ptr();
        let mut rows = [lanes.zero(); LANES];
        if self.count == LANES && len == LANES {
            for (signal, row) in rows.iter_mut().enumerate() {
                // SAFETY: the last element of the last signal lies inside.
                *row = unsafe { lanes.load_ptr(from.add(signal * self.stride)) };
            }
        } else {
            for (signal, row) in rows.iter_mut().enumerate().take(self.count) {
                // SAFETY: as above; only `len` elements are read.
                *row = unsafe { lanes.load_partial(from.add(signal * self.stride), len) };
            }
        }
        lanes.transpose(rows)
    }

    /// `pixels[p][lane] = signal lane [p]` for signals of `len` elements that begin at `from`; lanes without a signal
    /// become zero. Pixels past the end of a signal hold anything, up to a whole block of [`pixels_len`].
    #[inline(always)]
    pub(super) fn gather_pixels<L: Lanes>(self, lanes: L, from: &[f32], len: usize, pixels: &mut [f32]) {
        for p in (0..len).step_by(LANES) {
            // Reading on behind a signal is harmless; only at the end of the operand are there fewer than 16 elements.
            let from = &from[p..];
            let readable = from.len().saturating_sub((self.count - 1) * self.stride).min(LANES);
            for (pixel, &column) in self.gather(lanes, from, readable).iter().enumerate() {
                store(lanes, pixels, (p + pixel) * LANES, column);
            }
        }
    }

    /// `signal lane [p] (+)= scale * pixels[p][lane]` for signals of `len` elements from `first` on, the adjoint of
    /// [`Signals::gather_pixels`].
    ///
    /// # Safety
    /// No other live slice of `to` may share elements with the signals.
    #[inline(always)]
    pub(super) unsafe fn scatter_pixels<L: Lanes>(
        self,
        lanes: L,
        pixels: &[f32],
        to: &SharedMut<'_>,
        (first, len): (usize, usize),
        (scale, accumulate): (f32, Accumulate),
    ) {
        assert!(pixels_len(len) <= pixels.len() && first + (self.count - 1) * self.stride + len <= to.len());
        let scale = lanes.splat(scale);
        for p in (0..len).step_by(LANES) {
            let len = (len - p).min(LANES);
            let mut columns = [lanes.zero(); LANES];
            for (pixel, column) in columns.iter_mut().enumerate() {
                // SAFETY: the assert covers whole blocks of sixteen pixels.
                *column = unsafe { lanes.load_ptr(pixels.as_ptr().add((p + pixel) * LANES)) };
            }
            for (signal, row) in lanes.transpose(columns).into_iter().enumerate() {
                if signal < self.count {
                    // SAFETY: the assert covers the last element of the last signal, and the caller promises that they
                    // are ours; no more than `len` elements are read or written.
                    unsafe {
                        let at = to.as_ptr().add(first + p + signal * self.stride);
                        let value = match accumulate {
                            Accumulate::Replace => lanes.mul(row, scale),
                            Accumulate::Add if len == LANES => lanes.mul_add(row, scale, lanes.load_ptr(at)),
                            Accumulate::Add => lanes.mul_add(row, scale, lanes.load_partial(at, len)),
                        };
                        if len == LANES {
                            lanes.store_ptr(at, value)
                        } else {
                            lanes.store_partial(at, value, len)
                        }
                    }
                }
            }
        }
    }
}

/// Stores vector `v` at `to[at..]`.
#[inline(always)]
pub(super) fn store<L: Lanes>(lanes: L, to: &mut [f32], at: usize, v: L::V) {
    let to = &mut to[at..at + LANES];
    // SAFETY: the slice has sixteen elements.
    unsafe { lanes.store_ptr(to.as_mut_ptr(), v) };
}
