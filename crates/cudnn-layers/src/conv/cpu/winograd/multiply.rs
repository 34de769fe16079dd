//! The product at one frequency.

use tensor::{
    Accumulate,
    cpu::{
        block_gemm::{Left, block_gemm_ahead},
        simd::{Lanes, WithLanes, dispatch},
    },
};

/// See [`block_gemm_ahead`].
struct Multiply<'a>([usize; 3], Left<'a>, (&'a [f32], usize), (&'a mut [f32], usize), Accumulate, &'a [f32]);

impl WithLanes for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        block_gemm_ahead(lanes, self.0, self.1, self.2, self.3, self.4, self.5);
    }
}

/// `out (+)= left right`, for `rows x terms` times `terms x width`, with dense `right` and `out`; `next` will be
/// read by the following product.
pub(super) fn multiply(
    [rows, width, terms]: [usize; 3],
    left: Left<'_>,
    right: &[f32],
    out: &mut [f32],
    accumulate: Accumulate,
    next: &[f32],
) {
    dispatch(Multiply([rows, width, terms], left, (right, width), (out, width), accumulate, next));
}
