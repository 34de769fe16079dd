//! How parameters are initialised.

use crate::prototxt::{Error, Reader, one_of};

/// An initial distribution. `n` is the number chosen by [`VarianceNorm`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Filler {
    /// Every element is `value`
    Constant {
        /// The value
        value: f32,
    },
    /// Uniform in `[min, max)`
    Uniform {
        /// Lower bound
        min: f32,
        /// Upper bound
        max: f32,
    },
    /// Normal
    Gaussian {
        /// Mean
        mean: f32,
        /// Standard deviation
        std: f32,
    },
    /// Uniform in ±√(3/n) (Glorot and Bengio 2010)
    Xavier {
        /// What n counts
        variance_norm: VarianceNorm,
    },
    /// Normal with mean 0 and standard deviation √(2/n) (He et al. 2015)
    Msra {
        /// What n counts
        variance_norm: VarianceNorm,
    },
}

/// What `n` is for [`Filler::Xavier`] and [`Filler::Msra`]; a filter is (K, C, R, S).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum VarianceNorm {
    /// Elements / K: the inputs of one output
    #[default]
    FanIn,
    /// Elements / C: the outputs of one input
    FanOut,
    /// The mean of both
    Average,
}

const TYPES: [&str; 5] = ["constant", "uniform", "gaussian", "xavier", "msra"];

const NORMS: [(&str, VarianceNorm); 3] =
    [("FAN_IN", VarianceNorm::FanIn), ("FAN_OUT", VarianceNorm::FanOut), ("AVERAGE", VarianceNorm::Average)];

impl Filler {
    /// The filler in the field `name` of `parent`, or constant `default`.
    pub(super) fn read(parent: &mut Reader<'_>, name: &str, default: f32) -> Result<Self, Error> {
        match parent.optional_message(name)? {
            Some(filler) => Self::from_message(filler),
            None => Ok(Self::Constant { value: default }),
        }
    }

    pub(super) fn from_message(mut filler: Reader<'_>) -> Result<Self, Error> {
        let kind: String = filler.get_or("type", "constant".to_owned())?;
        Ok(match kind.as_str() {
            "constant" => Self::Constant { value: filler.get_or("value", 0.0)? },
            "uniform" => uniform(&mut filler)?,
            "gaussian" => gaussian(&mut filler)?,
            "xavier" => Self::Xavier { variance_norm: variance_norm(&mut filler)? },
            "msra" => Self::Msra { variance_norm: variance_norm(&mut filler)? },
            _ => return Err(filler.reject("type", &one_of(&TYPES))),
        })
    }
}

fn uniform(filler: &mut Reader<'_>) -> Result<Filler, Error> {
    let (min, max) = (filler.get_or("min", 0.0)?, filler.get_or("max", 1.0)?);
    filler.check("max", min <= max, &format!("at least min, {min}"))?;
    Ok(Filler::Uniform { min, max })
}

fn gaussian(filler: &mut Reader<'_>) -> Result<Filler, Error> {
    let (mean, std) = (filler.get_or("mean", 0.0)?, filler.get_or("std", 1.0)?);
    filler.check("std", std >= 0.0, "at least 0")?;
    let sparse: i32 = filler.get_or("sparse", -1)?;
    filler.check("sparse", sparse < 0, "-1 (sparse initialisation is not supported)")?;
    Ok(Filler::Gaussian { mean, std })
}

/// What is left to choose where the file's other numbers, which many files carry along, follow from the shape.
fn variance_norm(filler: &mut Reader<'_>) -> Result<VarianceNorm, Error> {
    filler.ignore(&["mean", "std", "value", "min", "max"]);
    Ok(filler.choice("variance_norm", &NORMS)?.unwrap_or_default())
}
