//! Lanes of any processor.

use super::lanes::{LANES, Lanes};

/// An array, for the compiler to vectorise as it can.
#[derive(Clone, Copy)]
pub(super) struct Portable;

// SAFETY: sixteen elements in an array.
unsafe impl Lanes for Portable {
    type V = [f32; LANES];
    const TILE_VECTORS: usize = 1;

    arithmetic! {
        add(self, a, b) = std::array::from_fn(|lane| a[lane] + b[lane]);
        sub(self, a, b) = std::array::from_fn(|lane| a[lane] - b[lane]);
        mul(self, a, b) = std::array::from_fn(|lane| a[lane] * b[lane]);
        // Without an FMA instruction `f32::mul_add` is a library call; two roundings are a thousand times faster.
        mul_add(self, a, b, c) = self.add(self.mul(a, b), c);
        neg_mul_add(self, a, b, c) = self.sub(c, self.mul(a, b));
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [value; LANES]
    }
    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        std::array::from_fn(|i| std::array::from_fn(|j| rows[j][i]))
    }
}
