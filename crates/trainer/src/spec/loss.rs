//! Softmax, its loss, and accuracy.

use crate::prototxt::{Error, Reader};

/// `Softmax` along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftmaxParams {
    /// The axis of the classes; negative counts from the end
    pub axis: i32,
}

impl SoftmaxParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("softmax_param")?;
        params.ignore(&["engine"]);
        Ok(Self { axis: params.get_or("axis", 1)? })
    }
}

/// `SoftmaxWithLoss`: -Σ log p(label), divided as `normalization` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftmaxWithLossParams {
    /// The axis of the classes; negative counts from the end
    pub axis: i32,
    /// Samples (or pixels) with this label count for nothing
    pub ignore_label: Option<i32>,
    /// What the sum is divided by
    pub normalization: Normalization,
}

/// What a loss summed over a mini-batch is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Normalization {
    /// Labels: samples times pixels, ignored ones included
    Full,
    /// Labels that are not ignored
    #[default]
    Valid,
    /// Samples
    BatchSize,
    /// 1
    None,
}

impl SoftmaxWithLossParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let axis = SoftmaxParams::read(layer)?.axis;
        let mut params = layer.message("loss_param")?;
        let names = [
            ("FULL", Normalization::Full),
            ("VALID", Normalization::Valid),
            ("BATCH_SIZE", Normalization::BatchSize),
            ("NONE", Normalization::None),
        ];
        // The boolean came first; where both stand, the newer one counts.
        let old = params.get("normalize")?.map(|normalize| match normalize {
            true => Normalization::Valid,
            false => Normalization::BatchSize,
        });
        let smoothing: f32 = params.get_or("label_smoothing", 0.0)?;
        params.check("label_smoothing", smoothing == 0.0, "0; smoothed labels are not supported")?;
        Ok(Self {
            axis,
            ignore_label: params.get("ignore_label")?,
            normalization: params.choice("normalization", &names)?.or(old).unwrap_or_default(),
        })
    }
}

/// `Accuracy`: the share of samples whose label is among the `top_k` highest scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccuracyParams {
    /// At least 1
    pub top_k: usize,
    /// The axis of the classes; negative counts from the end
    pub axis: i32,
    /// Samples (or pixels) with this label are not counted
    pub ignore_label: Option<i32>,
}

impl AccuracyParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("accuracy_param")?;
        Ok(Self {
            top_k: params.positive("top_k")?.unwrap_or(1),
            axis: params.get_or("axis", 1)?,
            ignore_label: params.get("ignore_label")?,
        })
    }
}
