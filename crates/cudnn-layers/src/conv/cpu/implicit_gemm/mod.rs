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

/// The algorithm. It turns the filter, or `dy`, in each task: to do so once for all of them gains nothing.
pub(super) fn pass(op: ConvOp, g: &ConvGeometry, threads: usize) -> Option<Box<dyn Pass>> {
    Some(match op {
        ConvOp::BackwardFilter => Box::new(FilterGradient::new(g, threads)),
        _ => Box::new(Correlation::new(op, g, threads)?),
    })
}
