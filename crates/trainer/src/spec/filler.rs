//! How parameters are initialised.

use super::params::{params, variants};
use crate::prototxt::{FromField, Reader, Result, choices};

variants! {
    /// An initial distribution. `n` is the number chosen by [`VarianceNorm`].
    #[derive(Copy)]
    Filler(filler) {
        "constant" = Constant {
            value: f32 = 0.0; "The value"
        }; "Every element is `value`"
        "uniform" = Uniform {
            min: f32 = 0.0; "Lower bound"
            max: f32 = 1.0, min <= max => &format!("at least min, {min}"); "Upper bound"
        }; "Uniform in `[min, max)`"
        "gaussian" = Gaussian {
            mean: f32 = 0.0; "Mean"
            std: f32 { standard_deviation(filler)? }; "Standard deviation"
        }; "Normal"
        "xavier" = Xavier {
            variance_norm: VarianceNorm { variance_norm(filler)? }; "What n counts"
        }; "Uniform in ±√(3/n) (Glorot and Bengio 2010)"
        "msra" = Msra {
            variance_norm: VarianceNorm { variance_norm(filler)? }; "What n counts"
        }; "Normal with mean 0 and standard deviation √(2/n) (He et al. 2015)"
    }
}

choices! {
    /// What `n` is for [`Filler::Xavier`] and [`Filler::Msra`]; a filter is (K, C, R, S).
    pub enum VarianceNorm {
        FanIn = "FAN_IN"; "Elements / K: the inputs of one output"
        FanOut = "FAN_OUT"; "Elements / C: the outputs of one input"
        Average = "AVERAGE"; "The mean of both"
    }
}

impl FromField for Filler {
    fn read(parent: &mut Reader<'_>, name: &str) -> Result<Option<Self>> {
        parent.optional_message(name)?.map(|mut filler| Self::from_message(&mut filler)).transpose()
    }
}

impl Filler {
    /// The same value everywhere.
    pub const fn constant(value: f32) -> Self {
        Self::Constant { value }
    }

    pub(super) fn from_message(filler: &mut Reader<'_>) -> Result<Self> {
        let kind: String = filler.get_or("type", "constant".to_owned())?;
        let read = Self::read_word(filler, "type", &kind)?;
        // What the other types go by, which many files carry along.
        filler.ignore(&["mean", "std", "value", "min", "max"]);
        Ok(read)
    }
}

fn standard_deviation(filler: &mut Reader<'_>) -> Result<f32> {
    let std = filler.get_or("std", 1.0)?;
    filler.check("std", std >= 0.0, "at least 0")?;
    let sparse: i32 = filler.get_or("sparse", -1)?;
    filler.check("sparse", sparse < 0, "-1 (sparse initialisation is not supported)")?;
    Ok(std)
}

/// What is left to choose where the numbers follow from the shape.
fn variance_norm(filler: &mut Reader<'_>) -> Result<VarianceNorm> {
    filler.get_or("variance_norm", VarianceNorm::FanIn)
}
