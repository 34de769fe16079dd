//! Winograd's minimal filtering for filters of 3 x 3 with stride 1: tiles of 4 x 4 outputs.
//!
//! A tile's window `x` and a filter `g` are evaluated at `6 x 6` points, multiplied there, and interpolated:
//! `y = A^T [(G g G^T) (B^T x B)] A`. Summed over input channels, the product at each point ("frequency") is a matrix
//! product: tiles x input channels times input channels x output channels, with 4 times fewer multiplications than the
//! definition. The price is workspace for the transformed operands, and a digit of accuracy.
//!
//! The workspace holds the transformed filters, which micro-batches share, and one block of tiles per thread.
//!
//! There are forms that were built and are not here. Tiles of 2 x 2 are as accurate as the definition, and slower than
//! tiles of 4 x 4 or implicit GEMM on every layer of AlexNet and ResNet-18. The gradient of the filters, and a form that goes
//! stage by stage through the whole micro-batch, are faster than others on ResNet-18's last layers only, by a hundredth of an
//! iteration each.

mod analyse;
mod filter;
mod forward;
mod layout;
mod minimal;
mod pixels;
mod synthesise;
#[cfg(test)]
mod tests;

use super::Pass;
use crate::conv::ConvOp;
use forward::Forward;
use layout::Problem;
use tensor::ConvGeometry;

/// Forward and backward data, block after block of tiles.
pub(super) fn pass(op: ConvOp, g: &ConvGeometry) -> Option<Box<dyn Pass>> {
    Some(Box::new(Forward::new(op, Problem::new(op, g)?)))
}
