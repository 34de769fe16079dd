//! The share of predictions whose label is among the `top_k` highest scores.
//!
//! Of equal scores the higher class ranks first, as in Caffe 1.0; a label whose score is NaN is never right. BVLC's later
//! sources count a label that ties with the `top_k`th score as wrong. So where a net has collapsed and gives all classes one
//! score, this says the share of the last class, and theirs 0.

use super::{LabelError, cpu, cuda};
use crate::AxisExtents;
use tensor::{Device, View, ViewMut};

/// Writes the accuracy, one element, over the predictions whose label is not `ignore_label` (0 if there are none).
///
/// # Errors
/// [`LabelError`] for the first label that is neither a class nor ignored; the accuracy is not written then. On a GPU, where
/// nobody waits here, the error shows in [`labels::device_fault`](super::labels::device_fault).
///
/// # Panics
/// If a length does not match `extents`.
pub fn forward(
    device: &Device,
    extents: &AxisExtents,
    top_k: usize,
    ignore_label: Option<i32>,
    scores: View<'_>,
    labels: View<'_>,
    mut accuracy: ViewMut<'_>,
) -> Result<(), LabelError> {
    assert_eq!((scores.len(), labels.len()), (extents.len(), extents.per_index()), "lengths of the operands");
    assert_eq!(accuracy.len(), 1, "accuracy is one element");
    match device {
        Device::Cpu(_) => {
            accuracy.host::<f32>()[0] =
                cpu::accuracy(extents, top_k, ignore_label, scores.host(), labels.host())?;
        }
        Device::Cuda(cuda) => cuda::accuracy(cuda, extents, top_k, ignore_label, (scores, labels, accuracy)),
    }
    Ok(())
}
