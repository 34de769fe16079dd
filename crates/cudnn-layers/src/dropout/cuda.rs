//! Dropout on the GPU.

use super::Dropout;
use crate::cuda_launches::{add, launch_tiles};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Cuda, Source},
};

static SOURCE: Source =
    Source { name: "dropout.cu", text: concat!(include_str!("../common.cuh"), include_str!("dropout.cu")) };

/// Elements that share the keys of the hash: see [`Dropout::keys`].
const BLOCK: usize = 1 << 32;

/// In place without a `from`.
pub(super) fn apply(
    cuda: &Cuda,
    dropout: &Dropout,
    from: Option<View<'_>>,
    mut to: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let (scale, threshold) = (dropout.scale(), dropout.threshold());
    let whole = to.len();
    for (block, start) in (0..).zip((0..whole).step_by(BLOCK)) {
        let range = start..whole.min(start + BLOCK);
        let [first, second] = dropout.keys(block);
        let (len, from) = (range.len(), from.map(|from| from.slice(range.clone())));
        let mut to = to.slice(range);
        let args = [
            first.into(),
            second.into(),
            threshold.into(),
            scale.into(),
            from.into(),
            (&mut to).into(),
            add(accumulate).into(),
            len.into(),
        ];
        // SAFETY: `dropout(u32 first_key, u32 second_key, u32 threshold, float scale, const float* x, float* y, int add,
        // u64 len)`; both views have `len` elements.
        unsafe { launch_tiles(cuda, &SOURCE, "dropout", len, &args) };
    }
}
