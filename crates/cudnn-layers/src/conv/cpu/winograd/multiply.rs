//! The product at one frequency.

use tensor::{
    Accumulate,
    cpu::{
        block_gemm::{Left, block_gemm},
        simd::{Lanes, WithLanes, dispatch},
    },
};

/// See [`block_gemm`].
struct Multiply<'a>([usize; 3], Left<'a>, (&'a [f32], usize), (&'a mut [f32], usize), Accumulate);

impl WithLanes for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        block_gemm(lanes, self.0, self.1, self.2, self.3, self.4);
    }
}

/// `out (+)= left right`, for `rows x terms` times `terms x width`, with dense `right` and `out`.
pub(super) fn multiply(
    [rows, width, terms]: [usize; 3],
    left: Left<'_>,
    right: &[f32],
    out: &mut [f32],
    accumulate: Accumulate,
) {
    dispatch(Multiply([rows, width, terms], left, (right, width), (out, width), accumulate));
}
