//! How parameters are initialised.

use crate::prototxt::{Error, FromField, Reader, choices};

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

choices! {
    VarianceNorm: "FAN_IN" = FanIn, "FAN_OUT" = FanOut, "AVERAGE" = Average;
}

impl FromField for Filler {
    fn read(parent: &mut Reader<'_>, name: &str) -> Result<Option<Self>, Error> {
        parent.optional_message(name)?.map(|mut filler| Self::from_message(&mut filler)).transpose()
    }
}

impl Filler {
    /// The same value everywhere.
    pub const fn constant(value: f32) -> Self {
        Self::Constant { value }
    }

    pub(super) fn from_message(filler: &mut Reader<'_>) -> Result<Self, Error> {
        let kind: String = filler.get_or("type", "constant".to_owned())?;
        Ok(match kind.as_str() {
            "constant" => Self::Constant { value: filler.get_or("value", 0.0)? },
            "uniform" => {
                let (min, max) = (filler.get_or("min", 0.0)?, filler.get_or("max", 1.0)?);
                filler.check("max", min <= max, &format!("at least min, {min}"))?;
                Self::Uniform { min, max }
            }
            "gaussian" => {
                let (mean, std) = (filler.get_or("mean", 0.0)?, filler.get_or("std", 1.0)?);
                filler.check("std", std >= 0.0, "at least 0")?;
                let sparse: i32 = filler.get_or("sparse", -1)?;
                filler.check("sparse", sparse < 0, "-1 (sparse initialisation is not supported)")?;
                Self::Gaussian { mean, std }
            }
            "xavier" => Self::Xavier { variance_norm: variance_norm(filler)? },
            "msra" => Self::Msra { variance_norm: variance_norm(filler)? },
            _ => return Err(filler.reject("type", "constant, uniform, gaussian, xavier or msra")),
        })
    }
}

/// What is left to choose where the file's other numbers, which many files carry along, follow from the shape.
fn variance_norm(filler: &mut Reader<'_>) -> Result<VarianceNorm, Error> {
    filler.ignore(&["mean", "std", "value", "min", "max"]);
    filler.get_or("variance_norm", VarianceNorm::default())
}
