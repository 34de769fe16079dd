//! Winograd's minimal filtering for filters of 3 x 3 with stride 1: tiles of 4 x 4 outputs.
//!
//! A tile's window `x` and a filter `g` are evaluated at `A x A` points, multiplied there, and interpolated:
//! `y = A^T [(G g G^T) (B^T x B)] A`. Summed over input channels, the product at each point ("frequency") is a matrix
//! product: tiles x input channels times input channels x output channels, with 4 times fewer
//! multiplications than the definition. The price is workspace for the transformed operands, and a digit of accuracy.
//! Tiles of 2 x 2 would be as accurate as the definition, and are hardly ever faster than those and other algorithms.
//!
//! | name | workspace |
//! | --- | --- |
//! | `WINOGRAD_4X4` | transformed filters, which micro-batches share, and one block of tiles per thread |
//! | `WINOGRAD_4X4_NONFUSED`, the only one for backward filter | the whole micro-batch transformed and some filters per thread |

mod analyse;
mod backward_filter;
mod filter;
mod forward;
mod layout;
mod minimal;
mod nonfused;
mod synthesise;
#[cfg(test)]
mod tests;

use super::Pass;
use crate::conv::ConvOp;
use backward_filter::BackwardFilter;
use forward::Forward;
use layout::Problem;
use nonfused::Nonfused;
use tensor::ConvGeometry;

/// Forward and backward data, block after block of tiles.
pub(super) fn fused(op: ConvOp, g: &ConvGeometry) -> Option<Box<dyn Pass>> {
    (op != ConvOp::BackwardFilter).then_some(())?;
    Some(Box::new(Forward::new(op, Problem::new(op, g)?)))
}

/// All operations, stage by stage for the whole micro-batch.
pub(super) fn nonfused(op: ConvOp, g: &ConvGeometry) -> Option<Box<dyn Pass>> {
    let problem = Problem::new(op, g)?;
    Some(match op {
        ConvOp::BackwardFilter => Box::new(BackwardFilter { problem }),
        _ => Box::new(Nonfused(Forward::new(op, problem))),
    })
}
