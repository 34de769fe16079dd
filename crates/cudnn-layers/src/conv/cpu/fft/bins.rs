//! Complex values of sixteen signals in memory.

use tensor::cpu::{LANES, Lanes};

/// Floats of a *bin*, one complex value of sixteen signals: sixteen real parts, then sixteen imaginary parts.
pub(super) const BIN: usize = 2 * LANES;

/// The points of the largest transform.
pub(super) const MAX: usize = 32;

/// A complex value of sixteen signals in registers: real parts, imaginary parts.
pub(super) type C<L> = [<L as Lanes>::V; 2];

/// Scratch for [`MAX`] bins, or twice as many real values. Aligned, as an array of floats would not be: a vector across
/// two cache lines costs twice.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Work(pub(super) [f32; MAX * BIN]);

impl Work {
    /// Zeros.
    pub(super) const CLEARED: Self = Self([0.0; MAX * BIN]);

    /// Its bins, one after the other.
    #[inline(always)]
    pub(super) fn bins(&mut self) -> Bins {
        Bins::new(&mut self.0, BIN)
    }
}

/// Bins `stride` floats apart, on their way into or out of a transform.
///
/// A pointer and no slice, because between the bins of a tile lie those of others, which another thread may be writing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bins {
    at: *mut f32,
    stride: usize,
    /// Where in a bin the real and the imaginary parts are.
    parts: [usize; 2],
}

impl Bins {
    /// Bins in `elements`.
    #[inline(always)]
    pub(super) fn new(elements: &mut [f32], stride: usize) -> Self {
        Self::at(elements.as_mut_ptr(), stride)
    }

    /// Bins from `at` on.
    #[inline(always)]
    pub(super) fn at(at: *mut f32, stride: usize) -> Self {
        Self { at, stride, parts: [0, LANES] }
    }

    /// The same with real and imaginary parts exchanged.
    #[inline(always)]
    pub(super) fn swapped(self) -> Self {
        Self { parts: [self.parts[1], self.parts[0]], ..self }
    }

    /// The same, numbered from bin `index` on.
    #[inline(always)]
    pub(super) fn from(self, index: usize) -> Self {
        Self { at: self.at.wrapping_add(index.wrapping_mul(self.stride)), ..self }
    }

    /// Bin `index`.
    ///
    /// # Safety
    /// It must be valid for reading.
    #[inline(always)]
    pub(super) unsafe fn load<L: Lanes>(self, l: L, index: usize) -> C<L> {
        let at = self.from(index).at;
        // SAFETY: promised by the caller.
        unsafe { [l.load_ptr(at.wrapping_add(self.parts[0])), l.load_ptr(at.wrapping_add(self.parts[1]))] }
    }

    /// Puts `z` into bin `index`.
    ///
    /// # Safety
    /// It must be valid for writing.
    #[inline(always)]
    pub(super) unsafe fn store<L: Lanes>(self, l: L, index: usize, [re, im]: C<L>) {
        let at = self.from(index).at;
        // SAFETY: promised by the caller.
        unsafe {
            l.store_ptr(at.wrapping_add(self.parts[0]), re);
            l.store_ptr(at.wrapping_add(self.parts[1]), im);
        }
    }
}
