//! Softmax, its loss and accuracy on the GPU.

use super::labels::{LossOptions, Normalization};
use crate::{
    AxisExtents,
    cuda_launches::{Extents, THREADS, add, launch_tiles},
};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda, Grid, Source},
};

static SOURCE: Source =
    Source { name: "softmax.cu", text: concat!(include_str!("../common.cuh"), include_str!("softmax.cu")) };

/// Sums over predictions are made by one block, in an order that depends on nothing but their number.
const ONE_BLOCK: Grid = Grid { blocks: [1, 1, 1], threads: 512, shared_bytes: 0 };

/// Bytes of scratch memory for the factor that `softmax_loss_factor` leaves.
const FACTOR_LEN: usize = 16;

pub(super) fn forward(cuda: &Cuda, extents: &AxisExtents, x: View<'_>, mut y: ViewMut<'_>) {
    let args = [x.into(), (&mut y).into()];
    // SAFETY: behind the extents `(const float* x, float* y)`; the contract has checked the lengths.
    unsafe { along_axis(cuda, extents, ["softmax_forward_rows", "softmax_forward_columns"], &args) };
}

pub(super) fn backward(
    cuda: &Cuda,
    extents: &AxisExtents,
    y: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let args = [y.into(), dy.into(), (&mut dx).into(), add(accumulate).into()];
    // SAFETY: behind the extents `(const float* y, const float* dy, float* dx, int add)`; the contract has checked the
    // lengths.
    unsafe { along_axis(cuda, extents, ["softmax_backward_rows", "softmax_backward_columns"], &args) };
}

/// Launches the kernel for rows that lie together, or the one for rows beside each other.
///
/// # Safety
/// `operands` are both kernels' parameters behind the extents, and have the elements of `extents`.
unsafe fn along_axis(
    cuda: &Cuda,
    extents: &AxisExtents,
    [rows, columns]: [&'static str; 2],
    operands: &[Arg<'_>],
) {
    let (count, empty) = (extents.per_index(), extents.is_empty());
    let (function, blocks) =
        if extents.inner == 1 { (rows, count) } else { (columns, count.div_ceil(THREADS as usize)) };
    let blocks = if empty { 0 } else { u32::try_from(blocks).expect("fewer than 2^32 predictions") };
    let extents = Extents::new(extents);
    let mut args = [extents.arg(); 5];
    args[1..=operands.len()].copy_from_slice(operands);
    // SAFETY: the caller's promise; there is a block or a thread for each row.
    unsafe { cuda.launch(&SOURCE, function, Grid::line(blocks, THREADS), &args[..=operands.len()]) };
}

pub(super) fn loss(
    cuda: &Cuda,
    extents: &AxisExtents,
    options: &LossOptions,
    p: View<'_>,
    labels: View<'_>,
    mut to: ViewMut<'_>,
) {
    let (device_extents, normaliser) = (Extents::new(extents), normaliser(extents, options.normalization));
    let (ignored, fault) = (ignored(options.ignore_label), Arg::Address(cuda.fault_address()));
    let to = Arg::from(&mut to);
    let args = [device_extents.arg(), normaliser, ignored, p.into(), labels.into(), to, fault];
    // SAFETY: `(Extents e, Normaliser normaliser, float ignored, const float* p, const float* labels, float* to, uint4*
    // fault)`; the contract has checked the lengths, and no label that is no class is used as an index.
    unsafe { cuda.launch(&SOURCE, "softmax_loss", ONE_BLOCK, &args) };
}

pub(super) fn loss_backward(
    cuda: &Cuda,
    extents: &AxisExtents,
    options: &LossOptions,
    loss_weight: f32,
    (p, labels, mut dx): (View<'_>, View<'_>, ViewMut<'_>),
    accumulate: Accumulate,
) {
    let (device_extents, normaliser) = (Extents::new(extents), normaliser(extents, options.normalization));
    let (ignored, fault) = (ignored(options.ignore_label), Arg::Address(cuda.fault_address()));
    let (weight, labels) = (Arg::F32(loss_weight), Arg::from(labels));
    cuda.scratch(|mut scratch| {
        let factor = Arg::Address(scratch.slice(0..FACTOR_LEN).address::<u8>());
        let args = [device_extents.arg(), normaliser, weight, ignored, labels, factor, fault];
        // SAFETY: `(Extents e, Normaliser normaliser, float weight, float ignored, const float* labels, float* factor, uint4*
        // fault)`; the contract has checked the labels' number, and there is room for the factor.
        unsafe { cuda.launch(&SOURCE, "softmax_loss_factor", ONE_BLOCK, &args) };
        let add = add(accumulate).into();
        let args = [device_extents.arg(), ignored, factor, p.into(), labels, (&mut dx).into(), add];
        // SAFETY: `(Extents e, float ignored, const float* factor, const float* p, const float* labels, float* dx, int
        // add)`; the contract has checked the lengths, and the kernel above has set the factor.
        unsafe { launch_tiles(cuda, &SOURCE, "softmax_loss_backward", extents.len(), &args) };
    });
}

pub(super) fn accuracy(
    cuda: &Cuda,
    extents: &AxisExtents,
    top_k: usize,
    ignore_label: Option<i32>,
    (scores, labels, mut to): (View<'_>, View<'_>, ViewMut<'_>),
) {
    let (extents, fault) = (Extents::new(extents), Arg::Address(cuda.fault_address()));
    let ignored = ignored(ignore_label);
    let args = [extents.arg(), top_k.into(), ignored, scores.into(), labels.into(), (&mut to).into(), fault];
    // SAFETY: `(Extents e, u64 top_k, float ignored, const float* scores, const float* labels, float* to, uint4* fault)`;
    // otherwise as for the loss.
    unsafe { cuda.launch(&SOURCE, "accuracy", ONE_BLOCK, &args) };
}

/// No label equals a NaN.
fn ignored(ignore_label: Option<i32>) -> Arg<'static> {
    Arg::F32(ignore_label.map_or(f32::NAN, |label| label as f32))
}

/// `Normaliser` of `softmax.cu`.
fn normaliser(extents: &AxisExtents, normalization: Normalization) -> Arg<'static> {
    match normalization {
        Normalization::Full => extents.per_index().into(),
        Normalization::Valid => Arg::U64(0),
        Normalization::BatchSize => extents.outer.into(),
        Normalization::None => Arg::U64(1),
    }
}
