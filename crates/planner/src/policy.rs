//! The two policies a user chooses: which micro-batch sizes may be used, and how workspace is given to
//! kernels.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::ParsePolicyError;

/// Which micro-batch sizes are measured and used, in the paper's spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BatchSizePolicy {
    /// Only the mini-batch itself: what a framework does without micro-batching.
    Undivided,
    /// 1, 2, 4, ... and the mini-batch itself.
    #[default]
    PowerOfTwo,
    /// The sizes of `powerOfTwo`, and of the others those that are likely to make the plan faster: nearly the
    /// plan of `all` for a small part of its measurements (ours; see
    /// [`profile_for`](crate::CostTable::profile_for)).
    Adaptive,
    /// Every size from 1 to the mini-batch.
    All,
}

impl BatchSizePolicy {
    /// Every policy, from the fewest sizes to the most.
    pub const ALL: [BatchSizePolicy; 4] = [
        BatchSizePolicy::Undivided,
        BatchSizePolicy::PowerOfTwo,
        BatchSizePolicy::Adaptive,
        BatchSizePolicy::All,
    ];

    /// The sizes that a plan for a mini-batch needs, rising; none for an empty mini-batch. Under `adaptive`
    /// those it begins with: a plan uses whatever else was measured.
    pub fn sizes(self, mini_batch: u32) -> Vec<u32> {
        match self {
            BatchSizePolicy::Undivided => (mini_batch > 0).then_some(mini_batch).into_iter().collect(),
            BatchSizePolicy::PowerOfTwo | BatchSizePolicy::Adaptive => {
                let powers = (0..u32::BITS).map(|exponent| 1 << exponent);
                let mut sizes: Vec<u32> = powers.take_while(|&size| size <= mini_batch).collect();
                if mini_batch > 0 && !mini_batch.is_power_of_two() {
                    sizes.push(mini_batch);
                }
                sizes
            }
            BatchSizePolicy::All => (1..=mini_batch).collect(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            BatchSizePolicy::Undivided => "undivided",
            BatchSizePolicy::PowerOfTwo => "powerOfTwo",
            BatchSizePolicy::Adaptive => "adaptive",
            BatchSizePolicy::All => "all",
        }
    }
}

impl fmt::Display for BatchSizePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for BatchSizePolicy {
    type Err = ParsePolicyError;

    /// Upper and lower case are the same here, as the original's own README misspells `powerOfTwo`.
    fn from_str(text: &str) -> Result<BatchSizePolicy, ParsePolicyError> {
        let found = BatchSizePolicy::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            ParsePolicyError::new("batch-size", text, "undivided, powerOfTwo, adaptive or all")
        })
    }
}

/// How kernels get their workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspacePolicy {
    /// A limit per kernel (the paper's Workspace Reuse).
    #[default]
    Wr,
    /// One total, divided among all kernels (the paper's Workspace Division).
    Wd,
    /// One arena that every kernel uses in turn: right whenever kernels do not run at the same time.
    Ws,
}

impl WorkspacePolicy {
    /// Every policy.
    pub const ALL: [WorkspacePolicy; 3] = [WorkspacePolicy::Wr, WorkspacePolicy::Wd, WorkspacePolicy::Ws];

    fn name(self) -> &'static str {
        match self {
            WorkspacePolicy::Wr => "wr",
            WorkspacePolicy::Wd => "wd",
            WorkspacePolicy::Ws => "ws",
        }
    }
}

impl fmt::Display for WorkspacePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for WorkspacePolicy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<WorkspacePolicy, ParsePolicyError> {
        let found = WorkspacePolicy::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| ParsePolicyError::new("workspace", text, "wr, wd or ws"))
    }
}
