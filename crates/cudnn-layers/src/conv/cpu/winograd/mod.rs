//! Winograd's minimal filtering for filters of 3 x 3 with stride 1: tiles of 2 x 2 or 4 x 4 outputs.
//!
//! A tile's window `x` and a filter `g` are evaluated at `A x A` points, multiplied there, and interpolated:
//! `y = A^T [(G g G^T) (B^T x B)] A`. Summed over input channels, the product at each point ("frequency") is a matrix
//! product: tiles x input channels times input channels x output channels, with 2.25 (F2) or 4 (F4) times fewer
//! multiplications than the definition. The price is workspace for the transformed operands, and for F4 a digit of
//! accuracy.
//!
//! | name | workspace |
//! | --- | --- |
//! | `WINOGRAD_2X2`, `WINOGRAD_4X4` | transformed filters, which micro-batches share, and one block of tiles per thread |
//! | `WINOGRAD_4X4_NONFUSED`, the only one for backward filter | the whole micro-batch transformed and some filters per thread |

mod analyse;
mod backward_filter;
mod filter;
mod forward;
mod layout;
mod minimal;
mod nonfused;
mod pixels;
mod synthesise;
#[cfg(test)]
mod tests;

pub(super) use minimal::{F2, F4};

use super::Pass;
use crate::conv::ConvOp;
use backward_filter::BackwardFilter;
use forward::Forward;
use layout::Problem;
use minimal::Minimal;
use nonfused::Nonfused;
use tensor::ConvGeometry;

/// Outputs and points of a tile of the larger form on each axis.
const M: usize = 4;
const A: usize = 6;

/// Tiles of `M x M` outputs, evaluated at `A x A` points, block after block of tiles.
pub(super) fn fused<T: Minimal<M, A>, const M: usize, const A: usize>(
    op: ConvOp,
    g: &ConvGeometry,
) -> Option<Box<dyn Pass>> {
    (op != ConvOp::BackwardFilter).then_some(())?;
    Some(Box::new(Forward::<T, M, A>::new(op, Problem::new(op, g, M)?)))
}

/// Tiles of 4 x 4 outputs, stage by stage for the whole micro-batch.
pub(super) fn nonfused(op: ConvOp, g: &ConvGeometry) -> Option<Box<dyn Pass>> {
    let problem = Problem::new(op, g, M)?;
    Some(match op {
        ConvOp::BackwardFilter => Box::new(BackwardFilter { problem }),
        _ => Box::new(Nonfused(Forward::<F4, M, A>::new(op, problem))),
    })
}
