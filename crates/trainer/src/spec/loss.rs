//! Softmax, its loss, and accuracy.

use super::params::params;
use crate::prototxt::{Reader, Result, choices};
use cudnn_layers::softmax::Normalization;

choices! {
    Normalization: "FULL" = Full, "VALID" = Valid, "BATCH_SIZE" = BatchSize, "NONE" = None;
}

params! {
    /// `Softmax` along one axis.
    SoftmaxParams(params: layer.softmax_param) ignores [engine] {
        axis: i32 = 1; "The axis of the classes; negative counts from the end"
    }

    /// `SoftmaxWithLoss`: -Σ log p(label), divided as `normalization` says.
    SoftmaxWithLossParams(params: layer.loss_param) {
        axis: i32 { SoftmaxParams::read(layer)?.axis }; "The axis of the classes; negative counts from the end"
        ignore_label: Option<i32>; "Samples (or pixels) with this label count for nothing"
        normalization: Normalization { normalization(params)? }; "What the sum is divided by"
        label_smoothing: f32 = 0.0, (0.0..=1.0).contains(&label_smoothing) => "from 0 to 1";
            "The share of each label that is given to all classes alike"
    }

    /// `Accuracy`: the share of samples whose label is among the `top_k` highest scores.
    AccuracyParams(params: layer.accuracy_param) {
        top_k: usize = 1, top_k > 0 => "at least 1"; "At least 1"
        axis: i32 = 1; "The axis of the classes; negative counts from the end"
        ignore_label: Option<i32>; "Samples (or pixels) with this label are not counted"
    }
}

/// The boolean came first; where both stand, the newer one counts.
fn normalization(params: &mut Reader<'_>) -> Result<Normalization> {
    let old = params.get("normalize")?.map(|normalize| match normalize {
        true => Normalization::Valid,
        false => Normalization::BatchSize,
    });
    Ok(params.get("normalization")?.or(old).unwrap_or_default())
}
