//! The normalisation layers.

use super::{Filler, params::params};
use crate::prototxt::{Error, Reader, choices};
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
        /// n, odd
        local_size: usize = 5, local_size % 2 == 1 => "odd, for a neighbourhood with a centre";
        /// α
        alpha: f32 = 1.0;
        /// β
        beta: f32 = 0.75;
        /// k; only across channels
        k: f32 = 1.0;
        /// What is summed over
        norm_region: Region = Region::AcrossChannels;
    }

    /// `BatchNorm`: each channel less its mean, divided by its standard deviation; then, in NVIDIA's form, scaled and
    /// shifted per channel.
    ///
    /// The running statistics are BVLC's in both forms: sums that fade by `moving_average_fraction`, with the factor that
    /// divides them, of the mean and of the unbiased variance without `eps`. NVIDIA's differ: averages (1 - f) new + f old that
    /// begin with the first mini-batch's, of the biased variance with `eps`, which is at least 1e-5 there. Its trained weights,
    /// whose factor is 1, test right here; a training's running statistics differ a little from its.
    BatchNormParams(params: layer.batch_norm_param) ignores [engine] {
        /// Normalise with the running statistics? If not given, in TEST only.
        use_global_stats: Option<bool>;
        /// Weight of the past in the running statistics, 0 to 1
        moving_average_fraction: f32 = 0.999, (0.0..=1.0).contains(&moving_average_fraction) => "from 0 to 1";
        /// Added to the variance, above 0
        eps: f32 = 1e-5, eps > 0.0 => "above 0";
        /// Initial scale and bias per channel, if the layer has them: with NVIDIA's `scale_bias`, or a filler for either
        scale_bias: Option<ScaleBias> { scale_bias(params)? };
    }

    /// The affine part of a [`BatchNormParams`] in NVIDIA's form.
    ScaleBias(params) {
        /// Initial scale, 1 by default
        scale_filler: Filler = Filler::constant(1.0);
        /// Initial bias, 0 by default
        bias_filler: Filler = Filler::constant(0.0);
    }

    /// `Scale`: y = a x + b, with a and b of the shape of `num_axes` axes from `axis` on.
    ScaleParams(params: layer.scale_param) {
        /// First axis of the parameters; negative counts from the end
        axis: i32 = 1;
        /// How many axes they have; -1 for all from `axis` on
        num_axes: i32 = 1, num_axes >= -1 => "at least -1";
        /// Is there a bias?
        bias_term: bool = false;
        /// Initial scale, 1 by default
        filler: Filler = Filler::constant(1.0);
        /// Initial bias
        bias_filler: Filler = Filler::constant(0.0);
    }
}

fn scale_bias(params: &mut Reader<'_>) -> Result<Option<ScaleBias>, Error> {
    let has_filler = params.has("scale_filler") || params.has("bias_filler");
    let fillers = ScaleBias::read(params)?;
    Ok((params.get_or("scale_bias", false)? || has_filler).then_some(fillers))
}
