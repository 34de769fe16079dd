//! Between memory, where the values of one channel are neighbours, and vectors with a channel in each lane.

use tensor::{
    Accumulate,
    cpu::simd::{LANES, Lanes},
};

/// Sixteen (or fewer) signals in memory: the first of each `stride` apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signals {
    pub(super) count: usize,
    pub(super) stride: usize,
}

impl Signals {
    /// Vectors of values `first..first + len` (at most sixteen) of every signal; the lanes of no signal are zero.
    ///
    /// # Panics
    /// If a value lies outside `from`.
    #[inline(always)]
    pub(super) fn gather<L: Lanes>(self, l: L, from: &[f32], first: usize, len: usize) -> [L::V; LANES] {
        self.check(from.len(), first, len);
        let mut rows = [l.zero(); LANES];
        for (signal, row) in rows.iter_mut().enumerate() {
            if signal < self.count {
                // SAFETY: `check` has shown the last value of the last signal to lie inside.
                unsafe {
                    let at = from.as_ptr().add(signal * self.stride + first);
                    *row = if len == LANES { l.load_ptr(at) } else { l.load_partial(at, len) };
                }
            }
        }
        l.transpose(rows)
    }

    /// The reverse of [`Signals::gather`], each value times `scale`.
    ///
    /// # Panics
    /// If a value lies outside `to`.
    #[inline(always)]
    pub(super) fn scatter<L: Lanes>(
        self,
        l: L,
        vectors: [L::V; LANES],
        to: &mut [f32],
        (first, len): (usize, usize),
        (scale, accumulate): (f32, Accumulate),
    ) {
        self.check(to.len(), first, len);
        let scale = l.splat(scale);
        for (signal, row) in l.transpose(vectors).into_iter().enumerate() {
            if signal < self.count {
                // SAFETY: `check` has shown the last value of the last signal to lie inside.
                unsafe {
                    let at = to.as_mut_ptr().add(signal * self.stride + first);
                    let value = match accumulate {
                        Accumulate::Replace => l.mul(row, scale),
                        Accumulate::Add if len == LANES => l.mul_add(row, scale, l.load_ptr(at)),
                        Accumulate::Add => l.mul_add(row, scale, l.load_partial(at, len)),
                    };
                    if len == LANES { l.store_ptr(at, value) } else { l.store_partial(at, value, len) }
                }
            }
        }
    }

    #[inline(always)]
    fn check(self, available: usize, first: usize, len: usize) {
        assert!(len <= LANES && self.count <= LANES, "{len} values of {} signals", self.count);
        let needed = self.count.saturating_sub(1) * self.stride + first + len;
        assert!(needed <= available, "{needed} elements in a slice of {available}");
    }
}
