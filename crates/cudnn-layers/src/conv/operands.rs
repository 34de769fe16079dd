//! The operands of the three operations, as the table in [`super`] names them.

use planner::ConvOp;
use std::ops::Range;
use tensor::{ConvGeometry, Format, TensorType};

/// Lengths of `a`, `b` and `out` in elements.
pub fn operand_lens(op: ConvOp, g: &ConvGeometry) -> [usize; 3] {
    match op {
        ConvOp::Forward => [g.x_len(), g.w_len(), g.y_len()],
        ConvOp::BackwardData => [g.y_len(), g.w_len(), g.x_len()],
        ConvOp::BackwardFilter => [g.x_len(), g.y_len(), g.w_len()],
    }
}

/// The blobs `a`, `b` and `out` where feature maps are of this format: filters and their gradients are always
/// [`Format::F32`].
pub(crate) fn operands(op: ConvOp, g: &ConvGeometry, format: Format) -> [TensorType; 3] {
    let x = TensorType::new(&[g.n, g.c, g.h, g.w], format);
    let (y, w) = (TensorType::new(&[g.n, g.k, g.out_h(), g.out_w()], format), TensorType::f32(&filter(g)));
    match op {
        ConvOp::Forward => [x, w, y],
        ConvOp::BackwardData => [y, w, x],
        ConvOp::BackwardFilter => [x, y, w],
    }
}

/// The extents of a filter.
pub(crate) fn filter(g: &ConvGeometry) -> [usize; 4] {
    [g.k, g.c / g.groups, g.r, g.s]
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
