//! Softmax, its loss, and accuracy.

use super::params::params;
use crate::prototxt::{Error, Reader, choices};
use cudnn_layers::softmax::loss::Normalization;

choices! {
    Normalization: "FULL" = Full, "VALID" = Valid, "BATCH_SIZE" = BatchSize, "NONE" = None;
}

params! {
    /// `Softmax` along one axis.
    SoftmaxParams(params: layer.softmax_param) ignores [engine] {
        /// The axis of the classes; negative counts from the end
        axis: i32 = 1;
    }

    /// `SoftmaxWithLoss`: -Σ log p(label), divided as `normalization` says.
    SoftmaxWithLossParams(params: layer.loss_param) first { no_smoothing(params)?; } {
        /// The axis of the classes; negative counts from the end
        axis: i32 { SoftmaxParams::read(layer)?.axis };
        /// Samples (or pixels) with this label count for nothing
        ignore_label: Option<i32>;
        /// What the sum is divided by
        normalization: Normalization { normalization(params)? };
    }

    /// `Accuracy`: the share of samples whose label is among the `top_k` highest scores.
    AccuracyParams(params: layer.accuracy_param) {
        /// At least 1
        top_k: usize = 1, top_k > 0 => "at least 1";
        /// The axis of the classes; negative counts from the end
        axis: i32 = 1;
        /// Samples (or pixels) with this label are not counted
        ignore_label: Option<i32>;
    }
}

fn no_smoothing(params: &mut Reader<'_>) -> Result<(), Error> {
    let smoothing: f32 = params.get_or("label_smoothing", 0.0)?;
    params.check("label_smoothing", smoothing == 0.0, "0; smoothed labels are not supported")
}

/// The boolean came first; where both stand, the newer one counts.
fn normalization(params: &mut Reader<'_>) -> Result<Normalization, Error> {
    let old = params.get("normalize")?.map(|normalize| match normalize {
        true => Normalization::Valid,
        false => Normalization::BatchSize,
    });
    Ok(params.get("normalization")?.or(old).unwrap_or_default())
}
