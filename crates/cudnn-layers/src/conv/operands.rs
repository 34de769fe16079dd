//! The operands of the three operations, as the table in [`super`] names them.

use planner::ConvOp;
use std::ops::Range;
use tensor::{ALIGNMENT, ConvGeometry, Format, TensorType};

/// Lengths of `a`, `b` and `out` in elements.
pub fn operand_lens(op: ConvOp, g: &ConvGeometry) -> [usize; 3] {
    in_order(op, [g.x_len(), g.w_len(), g.y_len()])
}

/// The blobs `a`, `b` and `out` where feature maps are of this format: filters are so, too, and their gradients in
/// single precision.
pub(crate) fn operands(op: ConvOp, g: &ConvGeometry, format: Format) -> [TensorType; 3] {
    let of_w = if op == ConvOp::BackwardFilter { Format::F32.in_order(format.layout) } else { format };
    let (extents, formats) = (operand_extents(op, g), in_order(op, [format, of_w, format]));
    std::array::from_fn(|operand| TensorType::new(&extents[operand], formats[operand]))
}

/// The extents of `a`, `b` and `out`.
pub(crate) fn operand_extents(op: ConvOp, g: &ConvGeometry) -> [[usize; 4]; 3] {
    let ConvGeometry { n, c, h, w, .. } = g.in_memory();
    let filter = [g.k, g.c / g.groups, g.r, g.s];
    in_order(op, [[n, c, h, w], filter, [g.n, g.k, g.out_h(), g.out_w()]])
}

/// What is said of `x`, `w` and `y`, in the order of `a`, `b` and `out`.
pub(crate) fn in_order<T>(op: ConvOp, [x, w, y]: [T; 3]) -> [T; 3] {
    match op {
        ConvOp::Forward => [x, w, y],
        ConvOp::BackwardData => [y, w, x],
        ConvOp::BackwardFilter => [x, y, w],
    }
}

/// The parts of the operands of `op` that belong to `samples`: of the filter and its gradient all, of the others a
/// slice.
pub(crate) fn slices(op: ConvOp, g: &ConvGeometry, samples: &Range<usize>) -> [Range<usize>; 3] {
    let part = |sample: usize| sample * samples.start..sample * samples.end;
    in_order(op, [part(g.x_sample()), 0..g.w_len(), part(g.y_sample())])
}

/// Bytes of so many elements where others follow.
pub(crate) fn padded(format: Format, len: usize) -> usize {
    (len * format.dtype.bytes()).next_multiple_of(ALIGNMENT)
}
