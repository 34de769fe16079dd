//! The operands of the three operations, as the table in [`super`] names them.

use planner::ConvOp;
use std::ops::Range;
use tensor::ConvGeometry;

/// Lengths of `a`, `b` and `out` in elements.
pub fn operand_lens(op: ConvOp, g: &ConvGeometry) -> [usize; 3] {
    match op {
        ConvOp::Forward => [g.x_len(), g.w_len(), g.y_len()],
        ConvOp::BackwardData => [g.y_len(), g.w_len(), g.x_len()],
        ConvOp::BackwardFilter => [g.x_len(), g.y_len(), g.w_len()],
    }
}

/// The parts of the operands of `op` that belong to `samples`: of the filter and its gradient all, of the others a slice.
pub(crate) fn slices(op: ConvOp, g: &ConvGeometry, samples: &Range<usize>) -> [Range<usize>; 3] {
    let part = |sample: usize| sample * samples.start..sample * samples.end;
    let (x, y, w) = (part(g.x_sample()), part(g.y_sample()), 0..g.w_len());
    match op {
        ConvOp::Forward => [x, w, y],
        ConvOp::BackwardData => [y, w, x],
        ConvOp::BackwardFilter => [x, y, w],
    }
}
