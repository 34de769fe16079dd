//! Labels: class numbers, stored as `f32` like every other blob, whose fractions are cut off, as in Caffe; and which of
//! them count.

use crate::AxisExtents;
use tensor::Device;
use thiserror::Error;

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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossOptions {
    /// What the sum is divided by.
    pub normalization: Normalization,
    /// The label of predictions that do not count.
    pub ignore_label: Option<i32>,
    /// The share of each label that is given to all classes alike.
    pub smoothing: f32,
}

impl LossOptions {
    /// What the sum is divided by if it is not 0, of which `counted` predictions are not ignored.
    pub(super) fn normaliser(&self, extents: &AxisExtents, counted: usize) -> usize {
        match self.normalization {
            Normalization::Full => extents.per_index(),
            Normalization::Valid => counted,
            Normalization::BatchSize => extents.outer,
            Normalization::None => 1,
        }
    }

    /// What the label's class, and what each other class, has of a label.
    pub(super) fn shares(&self, classes: usize) -> [f32; 2] {
        let other = self.smoothing / classes as f32;
        [1.0 - self.smoothing + other, other]
    }
}

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

/// The first word of a fault that is a label; then come sample, the label's bits and the number of classes.
const FAULT: u32 = 1;

/// The first label that a GPU found to be no class since this was asked last. To be asked after [`Device::check`]; on
/// the processor such a label was an error at once.
pub fn device_fault(device: &Device) -> Option<LabelError> {
    let Device::Cuda(cuda) = device else {
        return None;
    };
    match cuda.take_fault()? {
        [FAULT, sample, label, classes] => Some(LabelError {
            label: f32::from_bits(label),
            sample: sample as usize,
            classes: classes as usize,
        }),
        other => unreachable!("no CUDA kernel reports {other:?}"),
    }
}
