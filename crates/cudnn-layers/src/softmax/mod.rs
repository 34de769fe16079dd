//! Softmax over one axis, and what goes with it: the multinomial logistic loss, and the accuracy.
//!
//! `y = exp(x - max) / sum of exp(x - max)` along the axis of [`AxisExtents`]. Backward needs the top data:
//! `dx = y * (dy - sum of dy * y)`.
//!
//! `loss = -sum of ln(max(p[label], smallest normal number)) / normaliser` over all predictions, one per outer and
//! inner index, whose label is not the one to ignore; `p = softmax(x)`. With label smoothing s the label's class has
//! `1 - s` of it, and every one of K classes s / K more: the loss is the same sum of logarithms with these shares.
//! Fused with the softmax because its gradient is `dx = (p - share) * loss_weight / normaliser`, without the quotient
//! of small numbers that two separate gradients would form.
//!
//! The accuracy is the share of predictions whose label is among the `top_k` highest scores. Of equal scores the higher
//! class ranks first, as in Caffe 1.0; a label whose score is NaN is never right. BVLC's later sources count a label
//! that ties with the `top_k`th score as wrong. So where a net has collapsed and gives all classes one score, this says
//! the share of the last class, and theirs 0.

mod cpu;
mod cuda;
pub mod labels;
#[cfg(test)]
mod tests;

pub use labels::{LabelError, LossOptions, Normalization};

use crate::AxisExtents;
use tensor::{Device, Format, Out, Space, View, ViewMut};

/// `y = softmax(x)`.
pub fn forward(device: &Device, extents: &AxisExtents, x: View<'_>, y: ViewMut<'_>) {
    assert_eq!([x.len(), y.len()], [extents.len(); 2], "lengths of x and y");
    on_device!(device, forward(extents, x, y));
}

/// `dx (+)= ...` (see the module).
pub fn backward(device: &Device, extents: &AxisExtents, y: View<'_>, dy: View<'_>, dx: Out<'_>) {
    assert_eq!([y.len(), dy.len(), dx.to.len()], [extents.len(); 3], "lengths of y, dy and dx");
    on_device!(device, backward(extents, y, dy, dx));
}

/// What [`loss`] saves for [`loss_backward`]: the probabilities `p = softmax(x)`, and behind them the normaliser.
pub fn saved(extents: &AxisExtents) -> Space {
    Space::of::<f32>(extents.len() + 1)
}

/// Computes what is [`saved`], and the loss, one element. `labels` has one element per prediction, `outer * inner`.
///
/// # Errors
/// [`LabelError`] for the first label that is neither a class nor ignored; the loss is not written then. On a GPU,
/// where the host does not wait here, the error shows in [`labels::device_fault`].
pub fn loss(
    device: &Device,
    extents: &AxisExtents,
    options: &LossOptions,
    x: View<'_>,
    labels: View<'_>,
    mut saved: ViewMut<'_>,
    loss: ViewMut<'_>,
) -> Result<(), LabelError> {
    let (mut p, normaliser) = (saved.take(Format::F32, extents.len()), saved.take(Format::F32, 1));
    let lens = (x.len(), labels.len(), loss.len());
    assert_eq!(lens, (extents.len(), extents.per_index(), 1), "lengths of x, labels and loss");
    on_device!(device, forward(extents, x, p.reborrow()));
    on_device!(device, loss(extents, options, [p.as_view(), labels], [loss, normaliser]))
}

/// `dx (+)= (p - share of the label) * loss_weight / normaliser`, 0 for ignored labels. After a [`loss`] without error.
pub fn loss_backward(
    device: &Device,
    extents: &AxisExtents,
    options: &LossOptions,
    loss_weight: f32,
    mut saved: View<'_>,
    labels: View<'_>,
    dx: Out<'_>,
) {
    let (p, normaliser) = (saved.take(Format::F32, extents.len()), saved.take(Format::F32, 1));
    let lens = (labels.len(), dx.to.len());
    assert_eq!(lens, (extents.per_index(), extents.len()), "lengths of labels and dx");
    on_device!(device, loss_backward(extents, options, loss_weight, [p, normaliser, labels], dx));
}

/// Writes the accuracy, one element, over the predictions whose label is not `ignore_label` (0 if there are none); and
/// into `per_class`, if it is there, that over the predictions of each class.
///
/// # Errors
/// As [`loss`]; the accuracy is not written then.
#[allow(clippy::too_many_arguments)]
pub fn accuracy(
    device: &Device,
    extents: &AxisExtents,
    top_k: usize,
    ignore_label: Option<i32>,
    scores: View<'_>,
    labels: View<'_>,
    accuracy: ViewMut<'_>,
    per_class: Option<ViewMut<'_>>,
) -> Result<(), LabelError> {
    let lens = (scores.len(), labels.len(), accuracy.len());
    assert_eq!(lens, (extents.len(), extents.per_index(), 1), "lengths of scores, labels and accuracy");
    assert!(per_class.as_ref().is_none_or(|to| to.len() == extents.axis), "an accuracy for each class");
    on_device!(device, accuracy(extents, (top_k, ignore_label), [scores, labels], accuracy, per_class))
}
