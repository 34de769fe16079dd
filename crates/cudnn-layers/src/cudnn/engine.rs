//! Engines: what cuDNN's operation graphs are executed by. Their names say all that it takes to have them again.

use std::{fmt, ops::Range};

/// An engine of cuDNN with a value for each of its knobs: of one version of cuDNN and on one GPU always the same code.
/// Prints as cuDNN's own tags do, with the numbers that its header gives to types of knobs: `ENG62_K2=5_K27=8`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Engine {
    pub(crate) index: i64,
    /// Types and values, by rising type.
    pub(super) knobs: Vec<(u32, i64)>,
}

impl Engine {
    pub(crate) fn new(index: i64, mut knobs: Vec<(u32, i64)>) -> Self {
        knobs.sort_unstable();
        Self { index, knobs }
    }

    /// The engine of this name, of which each has one.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("ENG")?.split("_K");
        let index = parts.next()?.parse().ok()?;
        let knob =
            |part: &str| part.split_once('=').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let engine = Self::new(index, parts.map(knob).collect::<Option<_>>()?);
        (engine.to_string() == name).then_some(engine)
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ENG{}", self.index)?;
        self.knobs.iter().try_for_each(|(knob, value)| write!(f, "_K{knob}={value}"))
    }
}

/// What cuDNN says of an engine before it is built, in the numbers of its header, of which there may be new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineFacts {
    /// Bytes that it works in.
    pub(crate) workspace: usize,
    pub(crate) numerical: Vec<u32>,
    pub(crate) behavior: Vec<u32>,
}

impl EngineFacts {
    /// Numerical notes: products on tensor cores, for which single precision is rounded to TF32; operands or sums of
    /// half precision; another result each time; sums of transformed tiles.
    pub(crate) const TENSOR_CORES: Range<u32> = 0..1;
    pub(crate) const HALF_PRECISION: Range<u32> = 1..3;
    pub(crate) const NONDETERMINISTIC: Range<u32> = 4..5;
    pub(crate) const WINOGRAD: Range<u32> = 5..9;

    /// Whether there is such a note.
    pub(crate) fn says(&self, notes: Range<u32>) -> bool {
        self.numerical.iter().any(|note| notes.contains(note))
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
        assert_eq!(Engine::named(&engine.to_string()), Some(engine));
        assert_eq!(Engine::named("ENG0"), Some(Engine::new(0, Vec::new())));
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
            assert_eq!(Engine::named(other), None, "{other}");
        }
    }
}
