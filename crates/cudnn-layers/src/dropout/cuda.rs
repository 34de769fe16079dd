//! Dropout on the GPU.

use super::{Dropout, mix64};
use crate::cuda_launches::{add, launch_tiles};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda, Source},
};

static SOURCE: Source =
    Source { name: "dropout.cu", text: concat!(include_str!("../common.cuh"), include_str!("dropout.cu")) };

/// In place without a `from`.
pub(super) fn apply(
    cuda: &Cuda,
    dropout: &Dropout<'_>,
    from: Option<View<'_>>,
    mut to: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let args = [
        mix64(dropout.seed).into(),
        Arg::Address(dropout.iteration.address::<u8>()),
        dropout.threshold().into(),
        dropout.scale().into(),
        from.into(),
        (&mut to).into(),
        add(accumulate).into(),
        to.len().into(),
    ];
    // SAFETY: `dropout(u64 seed, const u64* iteration, u32 threshold, float scale, const float* x, float* y, int add, u64
    // len)`; both views have `len` elements, and the contract wants a `u64` where the iteration's number is.
    unsafe { launch_tiles(cuda, &SOURCE, "dropout", to.len(), &args) };
}
