//! Dropout on the GPU.

use super::{Dropout, mix64};
use crate::cuda_launches::{add, launch, source, tiles};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda},
};

source!("dropout.cu");

/// In place without a `from`.
pub(super) fn apply(
    cuda: &Cuda,
    dropout: &Dropout<'_>,
    from: Option<View<'_>>,
    mut to: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let (len, iteration) = (to.len(), Arg::Address(dropout.iteration.address::<u8>()));
    let (seed, threshold, scale) = (mix64(dropout.seed), dropout.threshold(), dropout.scale());
    // SAFETY: `dropout(u64 seed, const u64* iteration, u32 threshold, float scale, const float* x, float* y, int add, u64
    // len)`; both views have `len` elements, and the contract wants a `u64` where the iteration's number is.
    unsafe {
        launch!(
            cuda,
            "dropout",
            tiles(len),
            [seed, iteration, threshold, scale, from, &mut to, add(accumulate), len]
        )
    };
}
