//! Engines: what cuDNN's operation graphs are executed by. Their names say all that it takes to have them again.

use planner::ConvOp;
use std::{fmt, str::FromStr};
use thiserror::Error;

/// An engine of cuDNN with a value for each of its knobs: of one version of cuDNN and on one GPU always the same code. Prints
/// as cuDNN's own tags do, with the numbers that its header gives to types of knobs: `ENG62_K2=5_K27=8`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Engine {
    pub(super) index: i64,
    /// Types and values, by rising type.
    pub(super) knobs: Vec<(u32, i64)>,
}

impl Engine {
    pub(super) fn new(index: i64, mut knobs: Vec<(u32, i64)>) -> Self {
        knobs.sort_unstable();
        Self { index, knobs }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ENG{}", self.index)?;
        self.knobs.iter().try_for_each(|(knob, value)| write!(f, "_K{knob}={value}"))
    }
}

impl FromStr for Engine {
    type Err = NoEngine;

    fn from_str(name: &str) -> Result<Self, NoEngine> {
        let read = || {
            let mut parts = name.strip_prefix("ENG")?.split("_K");
            let index = parts.next()?.parse().ok()?;
            let knob = |part: &str| {
                let (knob, value) = part.split_once('=')?;
                Some((knob.parse().ok()?, value.parse().ok()?))
            };
            Some(Self::new(index, parts.map(knob).collect::<Option<_>>()?))
        };
        // Each engine has one name.
        read().filter(|engine| engine.to_string() == name).ok_or(NoEngine)
    }
}

/// A name that is no engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("engines are called ENG62_K2=5 and the like")]
pub(crate) struct NoEngine;

/// What cuDNN says of an engine before it is built, in the numbers of its header, of which there may be new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineFacts {
    /// Bytes that it works in.
    pub(crate) workspace: usize,
    pub(crate) numerical: Vec<u32>,
    pub(crate) behavior: Vec<u32>,
}

impl EngineFacts {
    /// Adds what cuDNN does not say: this engine transforms tiles, as its errors show (cuDNN 9.14).
    pub(super) fn correct(&mut self, op: ConvOp, engine: &Engine) {
        if op == ConvOp::BackwardFilter && engine.index == 17 {
            self.numerical.push(5);
        }
    }

    /// Whether it multiplies on tensor cores: single precision then rounds multiplicands to TF32.
    pub(crate) fn uses_tensor_cores(&self) -> bool {
        self.numerical.contains(&0)
    }

    /// Whether it rounds more than the types of its operands say: operands or sums to half precision.
    pub(crate) fn loses_precision(&self) -> bool {
        self.numerical.iter().any(|note| [1, 2].contains(note))
    }

    /// Whether it works in the frequency domain.
    pub(crate) fn transforms_to_frequencies(&self) -> bool {
        self.numerical.contains(&3)
    }

    /// Whether equal operands always give bit-equal results.
    pub(crate) fn is_deterministic(&self) -> bool {
        !self.numerical.contains(&4)
    }

    /// Whether it transforms tiles.
    pub(crate) fn is_winograd(&self) -> bool {
        self.numerical.iter().any(|note| (5..9).contains(note))
    }

    /// Whether its code is compiled when it is built, which takes seconds.
    pub(crate) fn is_compiled_late(&self) -> bool {
        self.behavior.contains(&0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_brings_its_engine_back() {
        let engine = Engine::new(62, vec![(27, 8), (2, 5), (13, -1)]);
        assert_eq!(engine.to_string(), "ENG62_K2=5_K13=-1_K27=8");
        assert_eq!(engine.to_string().parse(), Ok(engine));
        assert_eq!("ENG0".parse(), Ok(Engine::new(0, Vec::new())));
        for other in [
            "",
            "FFT",
            "ENG",
            "ENGX",
            "ENG1_K",
            "ENG1_K2",
            "ENG1_K2=",
            "ENG1_K2=x",
            "ENG1_K3=1_K2=1",
            "ENG01",
            "eng1",
        ] {
            assert_eq!(other.parse::<Engine>(), Err(NoEngine), "{other}");
        }
    }
}
