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
        unsafe { *to.cast::<[f32; LANES]>() = self.to_array(v) };
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

/// One 512-bit register.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx512(pulp::x86::V4);

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx512 {
    type V = pulp::f32x16;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        self.0.splat_f32x16(value)
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        pulp::cast(*from)
    }
    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; LANES] {
        pulp::cast(v)
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.add_f32x16(a, b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.sub_f32x16(a, b)
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.mul_f32x16(a, b)
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        self.0.mul_add_f32x16(a, b, c)
    }
    #[inline(always)]
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        self.0.negate_mul_add_f32x16(a, b, c)
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.max_f32x16(a, b)
    }
}

/// Two 256-bit registers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx2(pulp::x86::V3);

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx2 {
    type V = [pulp::f32x8; 2];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [self.0.splat_f32x8(value); 2]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        pulp::cast(*from)
    }
    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; LANES] {
        pulp::cast(v)
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.add_f32x8(a[0], b[0]), self.0.add_f32x8(a[1], b[1])]
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.sub_f32x8(a[0], b[0]), self.0.sub_f32x8(a[1], b[1])]
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.mul_f32x8(a[0], b[0]), self.0.mul_f32x8(a[1], b[1])]
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        [self.0.mul_add_f32x8(a[0], b[0], c[0]), self.0.mul_add_f32x8(a[1], b[1], c[1])]
    }
    #[inline(always)]
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        [self.0.negate_mul_add_f32x8(a[0], b[0], c[0]), self.0.negate_mul_add_f32x8(a[1], b[1], c[1])]
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.max_f32x8(a[0], b[0]), self.0.max_f32x8(a[1], b[1])]
    }
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
            results.map(|v| l.to_array(v)).to_vec()
        }
    }

    /// Small integers, so every instruction set must give the same exact values.
    #[test]
    fn every_instruction_set_agrees() {
        let portable = AllOps.call(Portable);
        assert_eq!(portable[3][5], 1.0 * 3.0 + 25.0);
        assert_eq!(portable[4][5], 25.0 - 1.0 * 3.0);
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
