//! Labels: class numbers, stored as `f32` like every other blob.

use crate::AxisExtents;
use thiserror::Error;

/// A label that names no class.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("the label {label} of sample {sample} is none of the classes 0 to {}", .classes - 1)]
pub struct LabelError {
    /// The label found.
    pub label: f32,
    /// The sample (outer index) it belongs to.
    pub sample: usize,
    /// The number of classes.
    pub classes: usize,
}

/// The class that `label` of prediction `index` names; `None` where it is to be ignored.
pub(super) fn class(
    extents: &AxisExtents,
    ignore_label: Option<i32>,
    label: f32,
    index: usize,
) -> Result<Option<usize>, LabelError> {
    if ignore_label.is_some_and(|ignored| label == ignored as f32) {
        return Ok(None);
    }
    let class = label as usize;
    if class as f32 != label || class >= extents.axis {
        return Err(LabelError { label, sample: index / extents.inner, classes: extents.axis });
    }
    Ok(Some(class))
}
