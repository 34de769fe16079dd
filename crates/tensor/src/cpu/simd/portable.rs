//! Lanes of any processor.

use super::lanes::{LANES, Lanes};

/// An array, for the compiler to vectorise as it can.
#[derive(Clone, Copy)]
pub(super) struct Portable;

// SAFETY: sixteen elements in an array.
unsafe impl Lanes for Portable {
    type V = [f32; LANES];
    const TILE_VECTORS: usize = 1;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [value; LANES]
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|lane| a[lane] - b[lane])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Without an FMA instruction `f32::mul_add` is a library call; two roundings are a thousand times faster.
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        self.sub(c, self.mul(a, b))
    }
    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        std::array::from_fn(|i| std::array::from_fn(|j| rows[j][i]))
    }
}
