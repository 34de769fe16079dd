//! The normalisation layers.

use super::Filler;
use crate::prototxt::{Error, Reader};

/// `LRN`: local response normalisation.
///
/// Across channels y = x (k + α/n Σ x²)^-β over `n` neighbouring channels; within a channel
/// y = x (1 + α/n² Σ x²)^-β over an n × n window padded with zeros.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LrnParams {
    /// n, odd
    pub local_size: usize,
    /// α
    pub alpha: f32,
    /// β
    pub beta: f32,
    /// k; only across channels
    pub k: f32,
    /// What is summed over
    pub norm_region: NormRegion,
}

/// The neighbourhood of an element in [`LrnParams`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum NormRegion {
    /// The same pixel of the neighbouring channels
    #[default]
    AcrossChannels,
    /// The neighbouring pixels of the same channel
    WithinChannel,
}

impl LrnParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("lrn_param")?;
        params.ignore(&["engine"]);
        let local_size = params.get_or("local_size", 5)?;
        params.check("local_size", local_size % 2 == 1, "odd, for a neighbourhood with a centre")?;
        let regions =
            [("ACROSS_CHANNELS", NormRegion::AcrossChannels), ("WITHIN_CHANNEL", NormRegion::WithinChannel)];
        Ok(Self {
            local_size,
            alpha: params.get_or("alpha", 1.0)?,
            beta: params.get_or("beta", 0.75)?,
            k: params.get_or("k", 1.0)?,
            norm_region: params.choice("norm_region", &regions)?.unwrap_or_default(),
        })
    }
}

/// `BatchNorm`: each channel less its mean, divided by its standard deviation; then, in NVIDIA's form, scaled and
/// shifted per channel.
///
/// The running statistics are BVLC's in both forms: sums that fade by `moving_average_fraction`, with the factor that
/// divides them, of the mean and of the unbiased variance without `eps`. NVIDIA's differ: averages (1 - f) new + f old that
/// begin with the first mini-batch's, of the biased variance with `eps`, which is at least 1e-5 there. Its trained weights,
/// whose factor is 1, test right here; a training's running statistics differ a little from its.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNormParams {
    /// Normalise with the running statistics? If not given, in TEST only.
    pub use_global_stats: Option<bool>,
    /// Weight of the past in the running statistics, 0 to 1
    pub moving_average_fraction: f32,
    /// Added to the variance, above 0
    pub eps: f32,
    /// Initial scale and bias per channel, if the layer has them: with NVIDIA's `scale_bias`, or a filler for either
    pub scale_bias: Option<ScaleBias>,
}

/// The affine part of a [`BatchNormParams`] in NVIDIA's form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleBias {
    /// Initial scale, 1 by default
    pub scale_filler: Filler,
    /// Initial bias, 0 by default
    pub bias_filler: Filler,
}

impl BatchNormParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("batch_norm_param")?;
        params.ignore(&["engine"]);
        let moving_average_fraction = params.get_or("moving_average_fraction", 0.999)?;
        params.check(
            "moving_average_fraction",
            (0.0..=1.0).contains(&moving_average_fraction),
            "from 0 to 1",
        )?;
        let eps = params.get_or("eps", 1e-5)?;
        params.check("eps", eps > 0.0, "above 0")?;
        let affine = ["scale_filler", "bias_filler"].iter().any(|filler| params.has(filler));
        let affine = params.get_or("scale_bias", false)? || affine;
        let fillers = ScaleBias {
            scale_filler: Filler::read(&mut params, "scale_filler", 1.0)?,
            bias_filler: Filler::read(&mut params, "bias_filler", 0.0)?,
        };
        Ok(Self {
            use_global_stats: params.get("use_global_stats")?,
            moving_average_fraction,
            eps,
            scale_bias: affine.then_some(fillers),
        })
    }
}

/// `Scale`: y = a x + b, with a and b of the shape of `num_axes` axes from `axis` on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleParams {
    /// First axis of the parameters; negative counts from the end
    pub axis: i32,
    /// How many axes they have; -1 for all from `axis` on
    pub num_axes: i32,
    /// Is there a bias?
    pub bias_term: bool,
    /// Initial scale, 1 by default
    pub filler: Filler,
    /// Initial bias
    pub bias_filler: Filler,
}

impl ScaleParams {
    pub(super) fn read(layer: &mut Reader<'_>) -> Result<Self, Error> {
        let mut params = layer.message("scale_param")?;
        let num_axes = params.get_or("num_axes", 1)?;
        params.check("num_axes", num_axes >= -1, "at least -1")?;
        Ok(Self {
            axis: params.get_or("axis", 1)?,
            num_axes,
            bias_term: params.get_or("bias_term", false)?,
            filler: Filler::read(&mut params, "filler", 1.0)?,
            bias_filler: Filler::read(&mut params, "bias_filler", 0.0)?,
        })
    }
}
