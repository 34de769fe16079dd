//! Lanes of AVX-512.

use super::lanes::{LANES, Lanes};
use std::arch::x86_64::__m512;

/// One 512-bit register.
#[derive(Clone, Copy)]
pub(super) struct Avx512(pub(super) pulp::x86::V4);

// SAFETY: sixteen elements in one register.
unsafe impl Lanes for Avx512 {
    type V = __m512;
    const TILE_VECTORS: usize = 4;

    arithmetic! {
        add(self, a, b) = self.0.avx512f._mm512_add_ps(a, b);
        sub(self, a, b) = self.0.avx512f._mm512_sub_ps(a, b);
        mul(self, a, b) = self.0.avx512f._mm512_mul_ps(a, b);
        mul_add(self, a, b, c) = self.0.avx512f._mm512_fmadd_ps(a, b, c);
        neg_mul_add(self, a, b, c) = self.0.avx512f._mm512_fnmadd_ps(a, b, c);
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        self.0.avx512f._mm512_set1_ps(value)
    }
    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V {
        // SAFETY: masked lanes are not accessed, and the caller promises the others.
        unsafe { self.0.avx512f._mm512_maskz_loadu_ps(first_lanes(count), from) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, v: Self::V, count: usize) {
        // SAFETY: masked lanes are not accessed, and the caller promises the others.
        unsafe { self.0.avx512f._mm512_mask_storeu_ps(to, first_lanes(count), v) };
    }
    /// First within each 128-bit quarter (pairs of rows, then pairs of pairs), then the quarters as a 4 x 4 matrix.
    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        let avx = self.0.avx512f;
        let [mut pairs, mut fours, mut halves, mut columns] = [rows; 4];
        for i in 0..8 {
            let (a, b) = (rows[2 * i], rows[2 * i + 1]);
            [pairs[2 * i], pairs[2 * i + 1]] = [avx._mm512_unpacklo_ps(a, b), avx._mm512_unpackhi_ps(a, b)];
        }
        // Quarter `q` of `fours[4 * g + j]` holds column `4 * q + j` of rows `4 * g..4 * g + 4`.
        for i in 0..8 {
            let first = 2 * i - i % 2;
            let (a, b) = (avx._mm512_castps_pd(pairs[first]), avx._mm512_castps_pd(pairs[first + 2]));
            fours[2 * i] = avx._mm512_castpd_ps(avx._mm512_unpacklo_pd(a, b));
            fours[2 * i + 1] = avx._mm512_castpd_ps(avx._mm512_unpackhi_pd(a, b));
        }
        for i in 0..8 {
            let j = i + i / 4 * 4;
            [halves[j], halves[j + 4]] = self.split_quarters(fours[j], fours[j + 4]);
        }
        for i in 0..8 {
            [columns[i], columns[i + 8]] = self.split_quarters(halves[i], halves[i + 8]);
        }
        columns
    }
}

impl Avx512 {
    /// The even and the odd quarters of `a` followed by those of `b`. Not a closure: that would be compiled on its own,
    /// without the instruction set.
    #[inline(always)]
    fn split_quarters(self, a: __m512, b: __m512) -> [__m512; 2] {
        let avx = self.0.avx512f;
        let even = avx._mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
        [even, avx._mm512_shuffle_f32x4::<0b11_01_11_01>(a, b)]
    }
}

/// A mask of the first `count` lanes.
#[inline(always)]
fn first_lanes(count: usize) -> u16 {
    ((1u32 << count.min(LANES)) - 1) as u16
}
