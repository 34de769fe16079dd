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
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

#[cfg(target_arch = "x86_64")]
use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use avx512::Avx512;
use portable::Portable;

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
    /// `value` in the lanes where `gate` is above 0, zero in the others (also where `gate` is NaN).
    fn where_positive(self, gate: Self::V, value: Self::V) -> Self::V;

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

    /// The elements with even and with odd numbers of the 32 that `a` and then `b` hold.
    #[inline(always)]
    fn deal(self, a: Self::V, b: Self::V) -> [Self::V; 2] {
        let (a, b) = (self.to_array(a), self.to_array(b));
        let both = |lane: usize| if lane < LANES { a[lane] } else { b[lane - LANES] };
        [0, 1].map(|odd| self.load(&std::array::from_fn(|lane| both(2 * lane + odd))))
    }

    /// One step of a search for the largest element and its label: `candidate` in the lanes where its element is larger
    /// than that of `best` or NaN, `best` in the others. Elements come first, labels second.
    #[inline(always)]
    fn larger(self, best: [Self::V; 2], candidate: [Self::V; 2]) -> [Self::V; 2] {
        let (best, candidate) = (best.map(|v| self.to_array(v)), candidate.map(|v| self.to_array(v)));
        let wins = |lane: usize| candidate[0][lane] > best[0][lane] || candidate[0][lane].is_nan();
        let pick = |of: usize, lane: usize| if wins(lane) { candidate[of][lane] } else { best[of][lane] };
        [0, 1].map(|of| self.load(&std::array::from_fn(|lane| pick(of, lane))))
    }

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
            let holed = l.load(&std::array::from_fn(|lane| if lane == 3 { f32::NAN } else { 1.0 }));
            let [largest, label] = l.larger([l.larger([b, a], [a, b])[0], a], [holed, c]);
            let rows = std::array::from_fn(|i| l.load(&std::array::from_fn(|j| (16 * i + j) as f32)));
            let mut partial = [-1.0; LANES];
            // SAFETY: five of sixteen elements are read and written.
            unsafe { l.store_partial(partial.as_mut_ptr(), l.load_partial([7.0; 5].as_ptr(), 5), 5) };
            let mut all = results.map(|v| l.to_array(v)).to_vec();
            let largest = l.to_array(largest).map(|value| if value.is_nan() { -9.0 } else { value });
            all.extend(l.transpose(rows).map(|v| l.to_array(v)));
            // SAFETY: five elements are read.
            all.extend([partial, l.to_array(unsafe { l.load_partial([3.0; 5].as_ptr(), 5) })]);
            all.extend([largest, l.to_array(label)]);
            all.extend(l.deal(a, c).map(|v| l.to_array(v)));
            let gate = l.mul(a, holed);
            all.push(l.to_array(l.where_positive(gate, l.sub(b, c))));
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
        assert_eq!(portable[24][2..5], [3.0, -9.0, 3.0], "the largest of 3, lane - 4 and 1 or NaN");
        assert_eq!(portable[25][2..5], [-2.0, 9.0, 0.0], "its label");
        assert_eq!((portable[26][7], portable[26][8]), (10.0, 0.0), "even numbers");
        assert_eq!((portable[27][7], portable[27][8]), (11.0, 1.0), "odd numbers");
        assert_eq!(portable[28][3..6], [0.0, 0.0, -22.0], "behind a NaN, 0 and 1");
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
