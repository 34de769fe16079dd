//! Products of matrices with an unrolled image that is never stored: the algorithm for every geometry.

mod correlate;
mod filter;
mod filter_gradient;
mod patch;

use super::Pass;
use crate::conv::ConvOp;
use correlate::Correlation;
use filter_gradient::FilterGradient;
use tensor::ConvGeometry;

/// The algorithm. With `turned_once` the filter is turned once for all tasks, in the workspace, and micro-batches share it; to
/// turn `dy` once for a filter's gradient gains nothing.
pub(super) fn pass(op: ConvOp, g: &ConvGeometry, threads: usize, turned_once: bool) -> Option<Box<dyn Pass>> {
    Some(match op {
        ConvOp::BackwardFilter if turned_once => return None,
        ConvOp::BackwardFilter => Box::new(FilterGradient::new(g, threads)),
        _ => Box::new(Correlation::new(op, g, turned_once)?),
    })
}
