//! Phases, and the rules that say in which of them a layer takes part.

use super::params::params;
use crate::prototxt::{Reader, Result, choices};

choices! {
    /// Whether a net trains or is tested.
    #[derive(Default)]
    pub enum Phase {
        #[default] Train = "TRAIN"; "Forward, backward, update"
        Test = "TEST"; "Forward only"
    }
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
    pub(super) fn merged(mut self, file: &mut Reader<'_>) -> Result<Self> {
        self.phase = file.get_or("phase", self.phase)?;
        self.level = file.get_or("level", self.level)?;
        self.stages.extend(file.list::<String>("stage")?);
        Ok(self)
    }
}

params! {
    /// Caffe's `NetStateRule`: the states that an `include` or `exclude` means. What is not given does not matter.
    StateRule(rule) {
        phase: Option<Phase>; "The phase has to be this one"
        min_level: Option<i32>; "The level has to be at least this"
        max_level: Option<i32>; "The level has to be at most this"
        stages "stage": Vec<String>; "All these stages have to be set"
        not_stages "not_stage": Vec<String>; "None of these stages may be set"
    }
}

impl StateRule {
    /// Does the rule mean `state`?
    pub fn matches(&self, state: &NetState) -> bool {
        self.phase.is_none_or(|phase| phase == state.phase)
            && self.min_level.is_none_or(|level| state.level >= level)
            && self.max_level.is_none_or(|level| state.level <= level)
            && self.stages.iter().all(|stage| state.stages.contains(stage))
            && !self.not_stages.iter().any(|stage| state.stages.contains(stage))
    }
}
