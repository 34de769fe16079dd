//! How parameters are initialised.

use super::params::params;
use crate::prototxt::{FromField, Reader, Result, choices};

choices! {
    /// An initial distribution. `n` is the number chosen by [`VarianceNorm`].
    pub enum FillerKind {
        Constant = "constant"; "Every element is `value`"
        Uniform = "uniform"; "Uniform in `[min, max)`"
        Gaussian = "gaussian"; "Normal with `mean` and `std`"
        Xavier = "xavier"; "Uniform in ±√(3/n) (Glorot and Bengio 2010)"
        Msra = "msra"; "Normal with mean 0 and standard deviation √(2/n) (He et al. 2015)"
    }

    /// What `n` is for [`FillerKind::Xavier`] and [`FillerKind::Msra`]; a filter is (K, C, R, S).
    pub enum VarianceNorm {
        FanIn = "FAN_IN"; "Elements / K: the inputs of one output"
        FanOut = "FAN_OUT"; "Elements / C: the outputs of one input"
        Average = "AVERAGE"; "The mean of both"
    }
}

params! {
    /// What a blob is filled with. Fields that its kind has no use for count for nothing: many files carry them along.
    #[derive(Copy)]
    Filler(filler) first {
            let sparse: i32 = filler.get_or("sparse", -1)?;
            filler.check("sparse", sparse < 0, "-1 (sparse initialisation is not supported)")?;
        } {
        kind "type": FillerKind = FillerKind::Constant; "The distribution"
        value: f32 = 0.0; "The value of a constant"
        min: f32 = 0.0; "Lower bound"
        max: f32 = 1.0, kind != FillerKind::Uniform || min <= max => &format!("at least min, {min}"); "Upper bound"
        mean: f32 = 0.0; "Mean of a Gaussian"
        std: f32 = 1.0, kind != FillerKind::Gaussian || std >= 0.0 => "at least 0"; "Its standard deviation"
        variance_norm: VarianceNorm = VarianceNorm::FanIn; "What n counts"
    }
}

impl FromField for Filler {
    fn read(parent: &mut Reader<'_>, name: &str) -> Result<Option<Self>> {
        parent.optional_message(name)?.map(|mut filler| Self::read(&mut filler)).transpose()
    }
}

impl Filler {
    /// The same value everywhere.
    pub const fn constant(value: f32) -> Self {
        let (kind, variance_norm) = (FillerKind::Constant, VarianceNorm::FanIn);
        Self { kind, value, min: 0.0, max: 1.0, mean: 0.0, std: 1.0, variance_norm }
    }

    /// Uniform in `[min, max)`.
    pub const fn uniform(min: f32, max: f32) -> Self {
        Self { kind: FillerKind::Uniform, min, max, ..Self::constant(0.0) }
    }
}
