//! Softmax, its loss and accuracy on the GPU.

use super::labels::{LabelError, LossOptions};
use crate::AxisExtents;
use crate::cuda_launches::{Extents, THREADS, add, launch, of_type, sources, threads, tiles};
use tensor::cuda::{Cuda, Grid};
use tensor::{Out, View, ViewMut};

sources!("softmax.cu");

/// Sums over predictions are made by one block, in an order that depends on nothing but their number.
const ONE_BLOCK: Grid = Grid { blocks: [1, 1, 1], threads: 512, at_once: false };

/// `y` is of the type of `x`, or in single precision.
pub(super) fn forward(cuda: &Cuda, extents: &AxisExtents, x: View<'_>, y: ViewMut<'_>) {
    let place = of_type(&[Some(x)]);
    let (function, to) = if x.format().dtype == y.format().dtype {
        ("softmax_forward", y.numbers())
    } else {
        ("softmax_probabilities", y.address::<f32>())
    };
    let (grid, extents, from) = (lines(extents), Extents::new(extents), x.numbers());
    // SAFETY: `function(Extents e, const real* x, real* or float* y)`; the contract has checked the lengths, and an
    // address is that of elements of its type.
    unsafe { launch!(cuda, place, function, grid, [extents, from, to]) };
}

pub(super) fn backward(cuda: &Cuda, extents: &AxisExtents, y: View<'_>, dy: View<'_>, dx: Out<'_>) {
    let (grid, extents, add) = (lines(extents), Extents::new(extents), add(dx.accumulate));
    let place = of_type(&[Some(y), Some(dy), Some(dx.to.as_view())]);
    let (y, dy, dx) = (y.numbers(), dy.numbers(), dx.to.numbers());
    // SAFETY: `softmax_backward(Extents e, const real* y, const real* dy, real* dx, int add)`; the contract has checked
    // the lengths.
    unsafe { launch!(cuda, place, "softmax_backward", grid, [extents, y, dy, dx, add]) };
}

/// A block for each row that lies together, or a thread for each of rows beside each other.
fn lines(extents: &AxisExtents) -> Grid {
    let rows = extents.per_index();
    if extents.inner != 1 {
        return threads(rows);
    }
    Grid::line(u32::try_from(rows).expect("fewer than 2^32 predictions"), THREADS)
}

pub(super) fn loss(
    cuda: &Cuda,
    extents: &AxisExtents,
    options: &LossOptions,
    [p, labels]: [View<'_>; 2],
    [to, divisor]: [ViewMut<'_>; 2],
) -> Result<(), LabelError> {
    let (normaliser, ignored) = (options.normaliser(extents, 0), ignored(options.ignore_label));
    let (e, shares) = (Extents::new(extents), options.shares(extents.axis));
    let [p, labels] = [p, labels].map(|view| view.address::<f32>());
    let ([to, by], fault) = ([to, divisor].map(|view| view.address::<f32>()), cuda.fault_address());
    let (function, grid) = ("softmax_loss", ONE_BLOCK);
    // SAFETY: `softmax_loss(Extents e, u64 normaliser, Shares shares, float ignored, const float* p, const
    // float* labels, float* to, float* divisor, uint4* fault)`; the contract has checked the lengths, and no label that
    // is no class is used as an index.
    unsafe { launch!(cuda, 0, function, grid, [e, normaliser, shares, ignored, p, labels, to, by, fault]) };
    Ok(())
}

pub(super) fn loss_backward(
    cuda: &Cuda,
    extents: &AxisExtents,
    options: &LossOptions,
    weight: f32,
    [p, divisor, labels]: [View<'_>; 3],
    dx: Out<'_>,
) {
    let (grid, e, shares) = (tiles(extents.len()), Extents::new(extents), options.shares(extents.axis));
    let [p, divisor, labels] = [p, divisor, labels].map(|view| view.address::<f32>());
    let (place, to, add) = (of_type(&[Some(dx.to.as_view())]), dx.to.numbers(), add(dx.accumulate));
    let (function, ignored) = ("softmax_loss_backward", ignored(options.ignore_label));
    // SAFETY: `softmax_loss_backward(Extents e, Shares shares, float ignored, float weight, const float* p, const float*
    // divisor, const float* labels, real* dx, int add)`; the contract has checked the lengths.
    unsafe {
        launch!(cuda, place, function, grid, [e, shares, ignored, weight, p, divisor, labels, to, add])
    };
}

pub(super) fn accuracy(
    cuda: &Cuda,
    extents: &AxisExtents,
    (top_k, ignore_label): (usize, Option<i32>),
    [scores, labels]: [View<'_>; 2],
    to: ViewMut<'_>,
    per_class: Option<ViewMut<'_>>,
) -> Result<(), LabelError> {
    let blocks = 1 + per_class.as_ref().map_or(0, ViewMut::len);
    let per_class = per_class.map_or(0, |per_class| per_class.address::<f32>());
    let blocks = u32::try_from(blocks).expect("a GPU has fewer than 2^32 blocks");
    let grid = Grid { blocks: [blocks, 1, 1], ..ONE_BLOCK };
    let (e, ignored) = (Extents::new(extents), ignored(ignore_label));
    let (place, from) = (of_type(&[Some(scores)]), scores.numbers());
    let (labels, to, fault) = (labels.address::<f32>(), to.address::<f32>(), cuda.fault_address());
    // SAFETY: `accuracy(Extents e, u64 top_k, float ignored, const real* scores, const float* labels, float* to, float*
    // per_class, uint4* fault)` with a block for all and one for each element of `per_class`; otherwise as for the loss.
    unsafe {
        launch!(cuda, place, "accuracy", grid, [e, top_k, ignored, from, labels, to, per_class, fault])
    };
    Ok(())
}

/// No label equals a NaN.
fn ignored(ignore_label: Option<i32>) -> f32 {
    ignore_label.map_or(f32::NAN, |label| label as f32)
}
