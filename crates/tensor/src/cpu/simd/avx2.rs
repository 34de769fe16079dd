//! Lanes of AVX2 with FMA.

use super::lanes::{LANES, Lanes};
use std::arch::x86_64::__m256;

/// Two 256-bit registers.
#[derive(Clone, Copy)]
pub(super) struct Avx2(pub(super) pulp::x86::V3);

/// Arithmetic by one intrinsic for each register.
macro_rules! by_register {
    ($($name:ident($($v:ident),+) = $set:ident.$intrinsic:ident;)+) => {$(
        #[inline(always)]
        fn $name(self, $($v: Self::V),+) -> Self::V {
            [self.0.$set.$intrinsic($($v[0]),+), self.0.$set.$intrinsic($($v[1]),+)]
        }
    )+};
}

// SAFETY: sixteen elements in two registers.
unsafe impl Lanes for Avx2 {
    type V = [__m256; 2];
    const TILE_VECTORS: usize = 1;

    by_register! {
        add(a, b) = avx._mm256_add_ps;
        sub(a, b) = avx._mm256_sub_ps;
        mul(a, b) = avx._mm256_mul_ps;
        mul_add(a, b, c) = fma._mm256_fmadd_ps;
        neg_mul_add(a, b, c) = fma._mm256_fnmadd_ps;
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [self.0.avx._mm256_set1_ps(value); 2]
    }
    /// Four 8 x 8 matrices, the two off the diagonal changing places.
    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        let mut columns = rows;
        for half in 0..2 {
            for quadrant in 0..2 {
                let mut block = [rows[0][0]; 8];
                for i in 0..8 {
                    block[i] = rows[8 * quadrant + i][half];
                }
                let block = self.transpose8(block);
                for i in 0..8 {
                    columns[8 * half + i][quadrant] = block[i];
                }
            }
        }
        columns
    }
}

impl Avx2 {
    #[inline(always)]
    fn transpose8(self, rows: [__m256; 8]) -> [__m256; 8] {
        let avx = self.0.avx;
        let [mut pairs, mut fours, mut columns] = [rows; 3];
        for i in 0..4 {
            let (a, b) = (rows[2 * i], rows[2 * i + 1]);
            [pairs[2 * i], pairs[2 * i + 1]] = [avx._mm256_unpacklo_ps(a, b), avx._mm256_unpackhi_ps(a, b)];
        }
        for i in 0..4 {
            let first = 2 * i - i % 2;
            let (a, b) = (avx._mm256_castps_pd(pairs[first]), avx._mm256_castps_pd(pairs[first + 2]));
            fours[2 * i] = avx._mm256_castpd_ps(avx._mm256_unpacklo_pd(a, b));
            fours[2 * i + 1] = avx._mm256_castpd_ps(avx._mm256_unpackhi_pd(a, b));
        }
        for i in 0..4 {
            let (a, b) = (fours[i], fours[i + 4]);
            columns[i] = avx._mm256_permute2f128_ps::<0x20>(a, b);
            columns[i + 4] = avx._mm256_permute2f128_ps::<0x31>(a, b);
        }
        columns
    }
}
