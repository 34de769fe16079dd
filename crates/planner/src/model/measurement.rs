//! A measured algorithm at one micro-batch size.

use super::units::{Bytes, Unusable};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// Name of an algorithm, such as `WINOGRAD_4X4_3X3`. Every backend has its own, so this is a string, cheap to clone.
/// Prints without the values of knobs that names of cuDNN's engines end in: `ENG62_K2=18_K27=2` as `ENG62`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Algorithm(Arc<str>);

impl Algorithm {
    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Algorithm {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.split_once("_K").filter(|_| self.0.contains('=')).map_or(&self.0, |(engine, _)| engine))
    }
}

/// What one algorithm costs on `micro_batch` samples: a row of the cost table. The paper's *micro-configuration*
/// (algorithm, micro-batch size, time, workspace), a piece of a configuration.
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
    #[serde(default, skip_serializing_if = "is_default")]
    pub shared_ms: f64,
    /// Scratch memory that the call needs.
    pub workspace: Bytes,
    /// Accuracy class: the typical largest |error| relative to the largest |reference|.
    pub max_error: f32,
    /// Whether equal operands always give bit-equal results.
    pub deterministic: bool,
}

/// No call takes a week.
const LONGEST_MS: f64 = 1e9;
/// No memory is larger.
const MOST_WORKSPACE: Bytes = Bytes(1 << 60);

/// Whether a value need not be written.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Measurement {
    /// Time of one sample in milliseconds.
    pub fn time_per_sample_ms(&self) -> f64 {
        self.time_ms / f64::from(self.micro_batch)
    }

    /// Whether it needs no more workspace than `other`, errs no more and is as deterministic, whatever the times.
    pub fn is_as_good_as(&self, other: &Self) -> bool {
        self.workspace <= other.workspace
            && self.max_error <= other.max_error
            && self.deterministic >= other.deterministic
    }

    /// Checks that the numbers can be planned with, and belong to `micro_batch` samples.
    pub(crate) fn validate(&self, micro_batch: u32) -> Result<(), Unusable> {
        let Self { time_ms, shared_ms, workspace, max_error, micro_batch: found, .. } = *self;
        let reason = if found == 0 {
            "was measured without a sample".to_owned()
        } else if found != micro_batch {
            format!("was measured at micro-batch {found} in a group for micro-batch {micro_batch}")
        } else if self.algorithm.as_str().contains(char::is_control) {
            "has a name that is no text".to_owned()
        } else if !(0.0..LONGEST_MS).contains(&time_ms) {
            format!("has an impossible time of {time_ms} ms")
        } else if !(0.0..=time_ms).contains(&shared_ms) {
            format!("cannot share {shared_ms} ms of its {time_ms} ms among micro-batches")
        } else if workspace > MOST_WORKSPACE {
            format!("has an impossible workspace of {workspace}")
        } else if !(max_error.is_finite() && max_error >= 0.0) {
            format!("has an impossible maximum error of {max_error}")
        } else {
            return Ok(());
        };
        Err(Unusable(format!("{} {reason}", self.algorithm.as_str().escape_debug())))
    }
}
