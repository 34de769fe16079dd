//! The normalisation layers.

use super::{Filler, params::params};
use crate::prototxt::{Reader, Result, choices};
use cudnn_layers::lrn::Region;

choices! {
    Region: "ACROSS_CHANNELS" = AcrossChannels, "WITHIN_CHANNEL" = WithinChannel;
}

params! {
    /// `LRN`: local response normalisation.
    ///
    /// Across channels y = x (k + α/n Σ x²)^-β over `n` neighbouring channels; within a channel
    /// y = x (1 + α/n² Σ x²)^-β over an n × n window padded with zeros.
    LrnParams(params: layer.lrn_param) ignores [engine] {
        local_size: usize = 5, local_size % 2 == 1 => "odd, for a neighbourhood with a centre"; "n, odd"
        alpha: f32 = 1.0; "α"
        beta: f32 = 0.75; "β"
        k: f32 = 1.0; "k; only across channels"
        norm_region: Region = Region::AcrossChannels; "What is summed over"
    }

    /// `BatchNorm`: each channel less its mean over its standard deviation; in NVIDIA's form, scaled and shifted then.
    ///
    /// The running statistics are BVLC's in both forms: sums that fade by `moving_average_fraction`, with the factor
    /// that divides them, of the mean and of the unbiased variance without `eps`. NVIDIA's differ: averages
    /// `(1 - f) new + f old` that begin with the first mini-batch's, of the biased variance with `eps`, which is at
    /// least 1e-5 there. Its trained weights, whose factor is 1, test right here; a training's running statistics differ
    /// a little from its.
    BatchNormParams(params: layer.batch_norm_param) ignores [engine] {
        use_global_stats: Option<bool>; "Normalise with the running statistics? If not given, in TEST only."
        moving_average_fraction: f32 = 0.999, (0.0..=1.0).contains(&moving_average_fraction) => "from 0 to 1";
            "Weight of the past in the running statistics, 0 to 1"
        eps: f32 = 1e-5, eps > 0.0 => "above 0"; "Added to the variance, above 0"
        scale_bias: Option<ScaleBias> { scale_bias(params)? };
            "Initial scale and bias per channel, if NVIDIA's `scale_bias` or a filler asks for them"
    }

    /// The affine part of a [`BatchNormParams`] in NVIDIA's form.
    ScaleBias(params) {
        scale_filler: Filler = Filler::constant(1.0); "Initial scale, 1 by default"
        bias_filler: Filler = Filler::constant(0.0); "Initial bias, 0 by default"
    }

    /// `Scale`: y = a x + b, with a and b of the shape of `num_axes` axes from `axis` on.
    ScaleParams(params: layer.scale_param) {
        axis: i32 = 1; "First axis of the parameters; negative counts from the end"
        num_axes: i32 = 1, num_axes >= -1 => "at least -1"; "How many axes they have; -1 for all from `axis` on"
        bias_term: bool = false; "Is there a bias?"
        filler: Filler = Filler::constant(1.0); "Initial scale, 1 by default"
        bias_filler: Filler = Filler::constant(0.0); "Initial bias"
    }
}

fn scale_bias(params: &mut Reader<'_>) -> Result<Option<ScaleBias>> {
    let has_filler = params.has("scale_filler") || params.has("bias_filler");
    let fillers = ScaleBias::read(params)?;
    Ok((params.get_or("scale_bias", false)? || has_filler).then_some(fillers))
}
