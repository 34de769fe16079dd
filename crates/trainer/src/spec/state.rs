//! Phases, and the rules that say in which of them a layer takes part.

use crate::prototxt::{Error, Reader};

/// Whether a net trains or is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Phase {
    /// Forward, backward, update
    #[default]
    Train,
    /// Forward only
    Test,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Train => "TRAIN",
            Self::Test => "TEST",
        })
    }
}

/// Caffe's `NetState`: what a net is built for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetState {
    /// TRAIN or TEST
    pub phase: Phase,
    /// An arbitrary number for rules to compare with; 0 unless set
    pub level: i32,
    /// Arbitrary words for rules to look for
    pub stages: Vec<String>,
}

impl NetState {
    /// The state of `phase`, with level 0 and no stages.
    pub fn phase(phase: Phase) -> Self {
        Self { phase, ..Self::default() }
    }

    /// This state with what `file` says on top, as protobuf merges messages: numbers replace, stages are appended.
    pub(super) fn merge(&mut self, mut file: Reader<'_>) -> Result<(), Error> {
        if let Some(phase) = file.choice("phase", &PHASES)? {
            self.phase = phase;
        }
        if let Some(level) = file.get("level")? {
            self.level = level;
        }
        self.stages.extend(file.list::<String>("stage")?);
        Ok(())
    }
}

const PHASES: [(&str, Phase); 2] = [("TRAIN", Phase::Train), ("TEST", Phase::Test)];

/// Caffe's `NetStateRule`: the states that an `include` or `exclude` means. What is not given does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateRule {
    /// The phase has to be this one
    pub phase: Option<Phase>,
    /// The level has to be at least this
    pub min_level: Option<i32>,
    /// The level has to be at most this
    pub max_level: Option<i32>,
    /// All these stages have to be set
    pub stages: Vec<String>,
    /// None of these stages may be set
    pub not_stages: Vec<String>,
}

impl StateRule {
    pub(super) fn read(mut rule: Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            phase: rule.choice("phase", &PHASES)?,
            min_level: rule.get("min_level")?,
            max_level: rule.get("max_level")?,
            stages: rule.list("stage")?,
            not_stages: rule.list("not_stage")?,
        })
    }

    /// Does the rule mean `state`?
    pub fn matches(&self, state: &NetState) -> bool {
        self.phase.is_none_or(|phase| phase == state.phase)
            && self.min_level.is_none_or(|level| state.level >= level)
            && self.max_level.is_none_or(|level| state.level <= level)
            && self.stages.iter().all(|stage| state.stages.contains(stage))
            && !self.not_stages.iter().any(|stage| state.stages.contains(stage))
    }
}
