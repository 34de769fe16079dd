//! Between operands, where one channel's values are neighbours, and vectors with a channel in each lane.

use tensor::Accumulate;
use tensor::cpu::{LANES, Lanes};

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
        self.check(from.len(), len);
        let from = from.as_ptr();
        let mut rows = [lanes.zero(); LANES];
        if self.count == LANES && len == LANES {
            for (signal, row) in rows.iter_mut().enumerate() {
                // SAFETY: `check` has shown the last element of the last signal to lie inside.
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

    /// The reverse of [`Signals::gather`], each value times `scale`.
    #[inline(always)]
    pub(super) fn scatter<L: Lanes>(
        self,
        lanes: L,
        vectors: [L::V; LANES],
        (to, len): (&mut [f32], usize),
        scale: f32,
        accumulate: Accumulate,
    ) {
        self.check(to.len(), len);
        // SAFETY: `check` has shown the last element of the last signal to lie inside.
        unsafe { self.scatter_ptr(lanes, vectors, (to.as_mut_ptr(), len), scale, accumulate) };
    }

    /// As [`Signals::scatter`], between elements that another thread may be writing.
    ///
    /// # Safety
    /// The elements are valid for reading and writing, and no other thread uses them.
    #[inline(always)]
    pub(super) unsafe fn scatter_ptr<L: Lanes>(
        self,
        lanes: L,
        vectors: [L::V; LANES],
        (to, len): (*mut f32, usize),
        scale: f32,
        accumulate: Accumulate,
    ) {
        let scale = lanes.splat(scale);
        for (signal, row) in lanes.transpose(vectors).into_iter().enumerate() {
            if signal < self.count {
                // SAFETY: the caller's promise; no more than `len` elements are read or written.
                unsafe {
                    let at = to.add(signal * self.stride);
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

    #[inline(always)]
    fn check(self, available: usize, len: usize) {
        assert!(len <= LANES && (1..=LANES).contains(&self.count), "{len} values of {} signals", self.count);
        let needed = (self.count - 1) * self.stride + len;
        assert!(needed <= available, "{needed} elements in a slice of {available}");
    }
}

/// Stores vector `v` at `to[at..]`.
#[inline(always)]
pub(super) fn store<L: Lanes>(lanes: L, to: &mut [f32], at: usize, v: L::V) {
    let to = &mut to[at..at + LANES];
    // SAFETY: the slice has sixteen elements.
    unsafe { lanes.store_ptr(to.as_mut_ptr(), v) };
}
