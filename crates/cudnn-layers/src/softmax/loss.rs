//! The multinomial logistic loss of a softmax.
//!
//! `loss = -sum of ln(max(p[label], smallest normal number)) / normaliser` over all predictions, one per outer and inner
//! index, whose label is not the one to ignore. Fused with the softmax because its gradient is
//! `dx = (p - 1 at the label) * loss_weight / normaliser`, without the quotient of small numbers that two separate gradients
//! would form.

use super::{LabelError, cpu, cuda};
use crate::AxisExtents;
use tensor::{Accumulate, Device, Format, Space, View, ViewMut};

/// What the summed loss is divided by (Caffe's `NormalizationMode`); never less than 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Normalization {
    /// All predictions.
    Full,
    /// Predictions whose label is not ignored.
    #[default]
    Valid,
    /// The outer extent.
    BatchSize,
    /// Nothing.
    None,
}

/// How losses are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LossOptions {
    /// What the sum is divided by.
    pub normalization: Normalization,
    /// The label of predictions that do not count.
    pub ignore_label: Option<i32>,
}

/// What forward saves for backward: the probabilities `p = softmax(x)`.
pub fn saved(extents: &AxisExtents) -> Space {
    Space::of::<f32>(extents.len())
}

/// Computes and saves the probabilities ([`saved`]), and the loss, one element. `labels` has one element per prediction,
/// `outer * inner`.
///
/// # Errors
/// [`LabelError`] for the first label that is neither a class nor ignored; the loss is not written then. On a GPU, where
/// nobody waits here, the error shows in [`labels::device_fault`](super::labels::device_fault).
///
/// # Panics
/// If a length does not match `extents`, as in all functions of this module.
pub fn forward(
    device: &Device,
    extents: &AxisExtents,
    options: &LossOptions,
    x: View<'_>,
    labels: View<'_>,
    mut saved: ViewMut<'_>,
    mut loss: ViewMut<'_>,
) -> Result<(), LabelError> {
    let mut p = saved.take(Format::F32, extents.len());
    super::forward(device, extents, x, p.reborrow());
    assert_eq!((labels.len(), loss.len()), (extents.per_index(), 1), "lengths of labels and loss");
    match device {
        Device::Cpu(_) => {
            loss.host::<f32>()[0] = cpu::loss(extents, options, p.host(), labels.host())?;
        }
        Device::Cuda(cuda) => cuda::loss(cuda, extents, options, p.as_view(), labels, loss),
    }
    Ok(())
}

/// `dx (+)= (p - 1 at the label) * loss_weight / normaliser`, 0 for ignored labels.
///
/// # Errors
/// As [`forward`]; `dx` is not written then.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    device: &Device,
    extents: &AxisExtents,
    options: &LossOptions,
    loss_weight: f32,
    mut saved: View<'_>,
    labels: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) -> Result<(), LabelError> {
    assert_eq!(dx.len(), extents.len(), "the length of dx");
    let p = saved.take(Format::F32, extents.len());
    assert_eq!(labels.len(), extents.per_index(), "the number of labels");
    match device {
        Device::Cpu(cpu) => {
            let operands = (p.host(), labels.host(), dx.host());
            cpu::loss_backward(cpu, extents, options, loss_weight, operands, accumulate)
        }
        Device::Cuda(cuda) => {
            cuda::loss_backward(cuda, extents, options, loss_weight, (p, labels, dx), accumulate);
            Ok(())
        }
    }
}
