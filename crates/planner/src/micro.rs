//! A measured algorithm at one micro-batch size.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::InvalidMeasurement;
use crate::units::Bytes;

/// Name of an algorithm, such as `WINOGRAD_4X4_3X3`. Every backend has its own, so this is a string, cheap to
/// clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Algorithm(Arc<str>);

impl Algorithm {
    /// The algorithm of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Algorithm {
        Algorithm(name.into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Algorithm {
    fn from(name: &str) -> Algorithm {
        Algorithm::new(name)
    }
}

impl From<String> for Algorithm {
    fn from(name: String) -> Algorithm {
        Algorithm::new(name)
    }
}

impl From<Algorithm> for String {
    fn from(algorithm: Algorithm) -> String {
        algorithm.as_str().to_owned()
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What one algorithm costs on `micro_batch` samples: a row of the cost table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Samples of one call.
    pub micro_batch: u32,
    /// Time of one call in milliseconds, its launch included.
    pub time_ms: f64,
    /// The part of it that the algorithm does only once, however many micro-batches of a kernel it gets: what depends
    /// on the filter alone, such as its transform. Zero for libraries whose calls know nothing of each other.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shared_ms: f64,
    /// Scratch memory that the call needs.
    pub workspace: Bytes,
    /// Accuracy class: the typical largest |error| relative to the largest |reference|.
    pub max_error: f32,
    /// Whether equal operands always give bit-equal results.
    pub deterministic: bool,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// A measurement seen as the paper does: (algorithm, micro-batch size, time, workspace), a piece of a
/// configuration.
pub type MicroConfiguration = Measurement;

impl Measurement {
    /// Time of one sample in milliseconds.
    pub fn time_per_sample_ms(&self) -> f64 {
        self.time_ms / f64::from(self.micro_batch)
    }

    /// Checks that the numbers can be planned with, and belong to `micro_batch` samples.
    pub(crate) fn validate(&self, micro_batch: u32) -> Result<(), InvalidMeasurement> {
        let algorithm = || self.algorithm.clone();
        if self.micro_batch != micro_batch || micro_batch == 0 {
            let (found, expected) = (self.micro_batch, micro_batch);
            return Err(InvalidMeasurement::MicroBatch { algorithm: algorithm(), found, expected });
        }
        if !(self.time_ms.is_finite() && self.time_ms >= 0.0) {
            return Err(InvalidMeasurement::Time { algorithm: algorithm(), time_ms: self.time_ms });
        }
        if !(0.0..=self.time_ms).contains(&self.shared_ms) {
            let (time_ms, shared_ms) = (self.time_ms, self.shared_ms);
            return Err(InvalidMeasurement::Shared { algorithm: algorithm(), time_ms, shared_ms });
        }
        if !(self.max_error.is_finite() && self.max_error >= 0.0) {
            return Err(InvalidMeasurement::MaxError { algorithm: algorithm(), max_error: self.max_error });
        }
        Ok(())
    }
}
