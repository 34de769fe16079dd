//! Dropout on the GPU.

use super::Dropout;
use crate::cuda_launches::{add, launch, numbers, of_type, sources, tiles};
use tensor::{Out, View, cuda::Cuda, rng::mix64};

sources!("dropout.cu");

/// In place without a `from`.
pub(super) fn apply(cuda: &Cuda, dropout: &Dropout<'_>, from: Option<View<'_>>, y: Out<'_>) {
    let (len, iteration, add) = (y.to.len(), dropout.iteration.address::<u8>(), add(y.accumulate));
    let (place, x, y) = (of_type(&[from, Some(y.to.as_view())]), numbers(from), y.to.numbers());
    let (seed, threshold, scale) = (mix64(dropout.seed), dropout.threshold(), dropout.scale());
    // SAFETY: `dropout(u64 seed, const u64* iteration, u32 threshold, float scale, const real* x, real* y, int add, u64
    // len)`; both views have `len` elements, and the contract wants a `u64` where the iteration's number is.
    unsafe {
        launch!(cuda, place, "dropout", tiles(len), [seed, iteration, threshold, scale, x, y, add, len])
    };
}
