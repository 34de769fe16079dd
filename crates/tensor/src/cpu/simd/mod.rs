//! Sixteen lanes of `f32` on whatever the processor has.
//!
//! Algorithms are written once over [`Lanes`] and entered through [`dispatch`], which picks AVX-512, AVX2 with FMA, or
//! plain arrays at run time. Sixteen because that is the widest common register and one cache line, so that blocks of
//! 16 channels or pixels mean the same on every machine.
//!
//! ```
//! use tensor::cpu::{dispatch, Lanes, WithLanes};
//!
//! struct Double<'a>(&'a mut [[f32; 16]]);
//! impl WithLanes for Double<'_> {
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

/// Arithmetic by one expression each.
macro_rules! arithmetic {
    ($($name:ident($self:ident, $($v:ident),+) = $value:expr;)+) => {$(
        #[inline(always)]
        fn $name($self, $($v: Self::V),+) -> Self::V {
            $value
        }
    )+};
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod lanes;
mod portable;

#[cfg(target_arch = "x86_64")]
use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use avx512::Avx512;
use portable::Portable;

pub use lanes::{LANES, Lanes, WithLanes};

/// Runs `op` with the widest lanes of this processor.
pub fn dispatch<T>(op: impl WithLanes<T>) -> T {
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
    impl WithLanes<Vec<[f32; LANES]>> for AllOps {
        #[inline(always)]
        fn call<L: Lanes>(self, l: L) -> Vec<[f32; LANES]> {
            let a = l.load(&std::array::from_fn(|lane| lane as f32 - 4.0));
            let (b, c) = (l.splat(3.0), l.load(&std::array::from_fn(|lane| (lane * lane) as f32)));
            let results = [l.add(a, b), l.sub(a, b), l.mul(a, b), l.mul_add(a, b, c), l.neg_mul_add(a, b, c)];
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
        assert_eq!(portable[5 + 3][11], (16 * 11 + 3) as f32, "transposed");
        assert_eq!((portable[21][4], portable[21][5]), (7.0, -1.0), "stored in part");
        assert_eq!((portable[22][4], portable[22][5]), (3.0, 0.0), "loaded in part");
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
