//! The product at one frequency.

use tensor::{
    Accumulate,
    cpu::block_gemm::{Left, block_gemm_ahead},
};

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
    block_gemm_ahead([rows, width, terms], left, (right, width), (out, width), accumulate, next);
}
