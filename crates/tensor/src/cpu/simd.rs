//! Sixteen lanes of `f32` on whatever the processor has.
//!
//! Algorithms are written once over [`Lanes`] and entered through [`dispatch`], which picks AVX-512, AVX2 with FMA, or
//! plain arrays at run time. Sixteen because that is the widest common register and one cache line, so that blocks of
//! 16 channels or pixels mean the same on every machine.
//!
//! ```
//! use tensor::cpu::simd::{dispatch, Lanes, WithLanes};
//!
//! struct Double<'a>(&'a mut [[f32; 16]]);
//! impl WithLanes for Double<'_> {
//!     type Output = ();
//!     #[inline(always)] // so that it is compiled with the instruction set that `dispatch` chose
//!     fn call<L: Lanes>(self, lanes: L) {
//!         for block in self.0 {
//!             let v = lanes.load(block);
//!             *block = lanes.to_array(lanes.add(v, v));
//!         }
//!     }
//! }
//! let mut blocks = [[1.5; 16]; 3];
//! dispatch(Double(&mut blocks));
//! assert_eq!(blocks, [[3.0; 16]; 3]);
//! ```

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m512};

/// The number of lanes.
pub const LANES: usize = 16;

/// Arithmetic on sixteen `f32` at once. The value itself is a witness that the instruction set is there.
pub trait Lanes: Copy + Send + Sync + 'static {
    /// Sixteen `f32`.
    type V: Copy + Send + Sync;

    /// All lanes equal to `value`.
    fn splat(self, value: f32) -> Self::V;
    /// Lanes from an array.
    fn load(self, from: &[f32; LANES]) -> Self::V;
    /// Lanes as an array.
    fn to_array(self, v: Self::V) -> [f32; LANES];
    /// Lanes into an array.
    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], v: Self::V) {
        *to = self.to_array(v);
    }
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the processor can.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`, rounded once where the processor can.
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger of each pair.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;

    /// Lanes from sixteen consecutive elements of any alignment.
    ///
    /// # Safety
    /// `from` must be valid for reading sixteen elements.
    #[inline(always)]
    unsafe fn load_ptr(self, from: *const f32) -> Self::V {
        // SAFETY: the caller promises sixteen readable elements; an array of f32 has the alignment of f32.
        self.load(unsafe { &*from.cast::<[f32; LANES]>() })
    }

    /// Stores to sixteen consecutive elements of any alignment.
    ///
    /// # Safety
    /// `to` must be valid for writing sixteen elements.
    #[inline(always)]
    unsafe fn store_ptr(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller promises sixteen writable elements; an array of f32 has the alignment of f32.
        self.store(unsafe { &mut *to.cast::<[f32; LANES]>() }, v);
    }

    /// Stores to a cache line past the caches, for results too large to be read again soon: the line is not fetched first.
    /// Other threads may read it after [`Lanes::finish_streams`].
    ///
    /// # Safety
    /// `to` must be aligned to 64 bytes and valid for writing sixteen elements.
    #[inline(always)]
    unsafe fn stream_ptr(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller promises sixteen writable elements.
        unsafe { self.store_ptr(to, v) };
    }

    /// Orders this thread's streamed stores before all that follow.
    #[inline(always)]
    fn finish_streams(self) {}

    /// The first `count` lanes (at most sixteen) from consecutive elements of any alignment, the others zero.
    ///
    /// # Safety
    /// `from` must be valid for reading `count` elements.
    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V {
        let mut lanes = [0.0; LANES];
        // SAFETY: the caller promises `count` readable elements; the array holds sixteen and `count` is cut to that.
        unsafe { std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), count.min(LANES)) };
        self.load(&lanes)
    }

    /// Stores the first `count` lanes (at most sixteen) to consecutive elements of any alignment.
    ///
    /// # Safety
    /// `to` must be valid for writing `count` elements.
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, v: Self::V, count: usize) {
        let lanes = self.to_array(v);
        // SAFETY: the caller promises `count` writable elements; the array holds sixteen and `count` is cut to that.
        unsafe { std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, count.min(LANES)) };
    }

    /// Asks for the cache line at `from`, which need not be a valid address, where the processor can.
    #[inline(always)]
    fn prefetch(self, from: *const f32) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE belongs to x86-64, and a prefetch of any address has no effect but on the cache.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(from.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = from;
    }

    /// The transpose of a 16 x 16 matrix: lane `j` of row `i` becomes lane `i` of row `j`.
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES];

    /// All lanes zero.
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }
}

/// A computation generic over the lanes it runs on.
pub trait WithLanes {
    /// Its result.
    type Output;
    /// The computation; mark it `#[inline(always)]`, and everything hot that it calls.
    fn call<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// Runs `op` with the widest lanes of this processor.
pub fn dispatch<Op: WithLanes>(op: Op) -> Op::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(v4) = pulp::x86::V4::try_new() {
            return v4.vectorize(
                #[inline(always)]
                || op.call(Avx512(v4)),
            );
        }
        if let Some(v3) = pulp::x86::V3::try_new() {
            return v3.vectorize(
                #[inline(always)]
                || op.call(Avx2(v3)),
            );
        }
    }
    op.call(Portable)
}

/// One 512-bit register.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx512(pulp::x86::V4);

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx512 {
    type V = __m512;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        self.0.avx512f._mm512_set1_ps(value)
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        // SAFETY: the array has sixteen elements.
        unsafe { self.load_ptr(from.as_ptr()) }
    }
    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; LANES] {
        pulp::cast(v)
    }
    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], v: Self::V) {
        // SAFETY: the array has sixteen elements.
        unsafe { self.store_ptr(to.as_mut_ptr(), v) };
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.avx512f._mm512_add_ps(a, b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.avx512f._mm512_sub_ps(a, b)
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.avx512f._mm512_mul_ps(a, b)
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        self.0.avx512f._mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        self.0.avx512f._mm512_fnmadd_ps(a, b, c)
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.avx512f._mm512_max_ps(a, b)
    }
    #[inline(always)]
    unsafe fn load_ptr(self, from: *const f32) -> Self::V {
        // SAFETY: the caller promises sixteen readable elements.
        unsafe { self.0.avx512f._mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store_ptr(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller promises sixteen writable elements.
        unsafe { self.0.avx512f._mm512_storeu_ps(to, v) };
    }
    #[inline(always)]
    unsafe fn stream_ptr(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller promises a writable cache line; `finish_streams` fences.
        unsafe { self.0.avx512f._mm512_stream_ps(to, v) };
    }
    #[inline(always)]
    fn finish_streams(self) {
        // SAFETY: AVX-512 implies SSE.
        unsafe { std::arch::x86_64::_mm_sfence() };
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
        let [mut pairs, mut fours, mut halves, mut columns] = [rows; 4];
        for i in 0..8 {
            [pairs[2 * i], pairs[2 * i + 1]] = self.unpack_singles(rows[2 * i], rows[2 * i + 1]);
        }
        // Quarter `q` of `fours[4 * g + j]` holds column `4 * q + j` of rows `4 * g..4 * g + 4`.
        for i in 0..8 {
            let first = 2 * i - i % 2;
            [fours[2 * i], fours[2 * i + 1]] = self.unpack_doubles(pairs[first], pairs[first + 2]);
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

// Not closures: those would be compiled on their own, without the instruction set.
#[cfg(target_arch = "x86_64")]
impl Avx512 {
    #[inline(always)]
    fn unpack_singles(self, a: __m512, b: __m512) -> [__m512; 2] {
        let avx = self.0.avx512f;
        [avx._mm512_unpacklo_ps(a, b), avx._mm512_unpackhi_ps(a, b)]
    }
    #[inline(always)]
    fn unpack_doubles(self, a: __m512, b: __m512) -> [__m512; 2] {
        let avx = self.0.avx512f;
        let (a, b) = (avx._mm512_castps_pd(a), avx._mm512_castps_pd(b));
        [
            avx._mm512_castpd_ps(avx._mm512_unpacklo_pd(a, b)),
            avx._mm512_castpd_ps(avx._mm512_unpackhi_pd(a, b)),
        ]
    }
    /// The even and the odd quarters of `a` followed by those of `b`.
    #[inline(always)]
    fn split_quarters(self, a: __m512, b: __m512) -> [__m512; 2] {
        let avx = self.0.avx512f;
        let even = avx._mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
        [even, avx._mm512_shuffle_f32x4::<0b11_01_11_01>(a, b)]
    }
}

/// Two 256-bit registers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx2(pulp::x86::V3);

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx2 {
    type V = [__m256; 2];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [self.0.avx._mm256_set1_ps(value); 2]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        // SAFETY: the array has sixteen elements.
        unsafe { self.load_ptr(from.as_ptr()) }
    }
    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; LANES] {
        pulp::cast(v)
    }
    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], v: Self::V) {
        // SAFETY: the array has sixteen elements.
        unsafe { self.store_ptr(to.as_mut_ptr(), v) };
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.avx._mm256_add_ps(a[0], b[0]), self.0.avx._mm256_add_ps(a[1], b[1])]
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.avx._mm256_sub_ps(a[0], b[0]), self.0.avx._mm256_sub_ps(a[1], b[1])]
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.avx._mm256_mul_ps(a[0], b[0]), self.0.avx._mm256_mul_ps(a[1], b[1])]
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        [self.0.fma._mm256_fmadd_ps(a[0], b[0], c[0]), self.0.fma._mm256_fmadd_ps(a[1], b[1], c[1])]
    }
    #[inline(always)]
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        [self.0.fma._mm256_fnmadd_ps(a[0], b[0], c[0]), self.0.fma._mm256_fnmadd_ps(a[1], b[1], c[1])]
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.avx._mm256_max_ps(a[0], b[0]), self.0.avx._mm256_max_ps(a[1], b[1])]
    }
    #[inline(always)]
    unsafe fn load_ptr(self, from: *const f32) -> Self::V {
        // SAFETY: the caller promises sixteen readable elements.
        unsafe { [self.0.avx._mm256_loadu_ps(from), self.0.avx._mm256_loadu_ps(from.wrapping_add(8))] }
    }
    #[inline(always)]
    unsafe fn store_ptr(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller promises sixteen writable elements.
        unsafe {
            self.0.avx._mm256_storeu_ps(to, v[0]);
            self.0.avx._mm256_storeu_ps(to.wrapping_add(8), v[1]);
        }
    }
    #[inline(always)]
    unsafe fn stream_ptr(self, to: *mut f32, v: Self::V) {
        // SAFETY: the caller promises a writable cache line; `finish_streams` fences.
        unsafe {
            self.0.avx._mm256_stream_ps(to, v[0]);
            self.0.avx._mm256_stream_ps(to.wrapping_add(8), v[1]);
        }
    }
    #[inline(always)]
    fn finish_streams(self) {
        // SAFETY: AVX2 implies SSE.
        unsafe { std::arch::x86_64::_mm_sfence() };
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

#[cfg(target_arch = "x86_64")]
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

/// A mask of the first `count` lanes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn first_lanes(count: usize) -> u16 {
    ((1u32 << count.min(LANES)) - 1) as u16
}

/// An array, for the compiler to vectorise as it can.
#[derive(Clone, Copy)]
struct Portable;

impl Portable {
    #[inline(always)]
    fn zip(a: [f32; LANES], b: [f32; LANES], op: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
        std::array::from_fn(|lane| op(a[lane], b[lane]))
    }
}

impl Lanes for Portable {
    type V = [f32; LANES];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [value; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        *from
    }
    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; LANES] {
        v
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, |a, b| a * b)
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
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, f32::max)
    }
    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        std::array::from_fn(|i| std::array::from_fn(|j| rows[j][i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct AllOps;
    impl WithLanes for AllOps {
        type Output = Vec<[f32; LANES]>;
        #[inline(always)]
        fn call<L: Lanes>(self, l: L) -> Self::Output {
            let a = l.load(&std::array::from_fn(|lane| lane as f32 - 4.0));
            let (b, c) = (l.splat(3.0), l.load(&std::array::from_fn(|lane| (lane * lane) as f32)));
            let results = [
                l.add(a, b),
                l.sub(a, b),
                l.mul(a, b),
                l.mul_add(a, b, c),
                l.neg_mul_add(a, b, c),
                l.max(a, b),
            ];
            let rows = std::array::from_fn(|i| l.load(&std::array::from_fn(|j| (16 * i + j) as f32)));
            let mut partial = [-1.0; LANES];
            // SAFETY: five of sixteen elements are read and written.
            unsafe { l.store_partial(partial.as_mut_ptr(), l.load_partial([7.0; 5].as_ptr(), 5), 5) };
            let mut all = results.map(|v| l.to_array(v)).to_vec();
            all.extend(l.transpose(rows).map(|v| l.to_array(v)));
            // SAFETY: five elements are read.
            all.extend([partial, l.to_array(unsafe { l.load_partial([3.0; 5].as_ptr(), 5) })]);
            all
        }
    }

    /// Small integers, so every instruction set must give the same exact values.
    #[test]
    fn every_instruction_set_agrees() {
        let portable = AllOps.call(Portable);
        assert_eq!(portable[3][5], 1.0 * 3.0 + 25.0);
        assert_eq!(portable[4][5], 25.0 - 1.0 * 3.0);
        assert_eq!(portable[6 + 3][11], (16 * 11 + 3) as f32, "transposed");
        assert_eq!((portable[22][4], portable[22][5]), (7.0, -1.0), "stored in part");
        assert_eq!((portable[23][4], portable[23][5]), (3.0, 0.0), "loaded in part");
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(v3) = pulp::x86::V3::try_new() {
                assert_eq!(v3.vectorize(|| AllOps.call(Avx2(v3))), portable);
            }
            if let Some(v4) = pulp::x86::V4::try_new() {
                assert_eq!(v4.vectorize(|| AllOps.call(Avx512(v4))), portable);
            }
        }
        assert_eq!(dispatch(AllOps), portable);
    }
}
