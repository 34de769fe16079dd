//! What a user chooses: which micro-batch sizes are used, how kernels get workspace, and what divides a total.

use super::names::{chosen_by_name, printed};
use super::units::Unusable;
use serde::{Deserialize, Serialize};

/// Which micro-batch sizes are measured and used, in the paper's spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BatchSizePolicy {
    /// Only the mini-batch itself: what a framework does without micro-batching.
    Undivided,
    /// 1, 2, 4, ... and the mini-batch itself.
    #[default]
    PowerOfTwo,
    /// The sizes of `powerOfTwo`, and of the others those that are likely to make the plan faster: nearly the plan of
    /// `all` for a small part of its measurements (ours; see [`profile`](crate::profile())).
    Adaptive,
    /// Every size from 1 to the mini-batch.
    All,
}

impl BatchSizePolicy {
    /// Every policy, from the fewest sizes to the most.
    pub const ALL: [Self; 4] = [Self::Undivided, Self::PowerOfTwo, Self::Adaptive, Self::All];

    /// The sizes that a plan for a mini-batch needs, rising; none for an empty mini-batch. Under `adaptive` those it
    /// begins with: a plan uses whatever else was measured.
    pub fn sizes(self, mini_batch: u32) -> Vec<u32> {
        match self {
            _ if mini_batch == 0 => Vec::new(),
            Self::Undivided => vec![mini_batch],
            Self::PowerOfTwo | Self::Adaptive => {
                let powers = (0..u32::BITS).map(|exponent| 1 << exponent);
                powers.take_while(|&size| size < mini_batch).chain([mini_batch]).collect()
            }
            Self::All => (1..=mini_batch).collect(),
        }
    }
}

chosen_by_name!(BatchSizePolicy, "batch-size policy" {
    Undivided: "undivided",
    PowerOfTwo: "powerOfTwo",
    Adaptive: "adaptive",
    All: "all",
} "undivided, powerOfTwo, adaptive or all");

/// How kernels get their workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspacePolicy {
    /// A limit per kernel (the paper's Workspace Reuse).
    #[default]
    Wr,
    /// One total, divided among all kernels (the paper's Workspace Division).
    Wd,
    /// One total, which is an arena that every kernel uses in turn. Kernels that do not run at the same time can share
    /// it, so that each has all of it: the plan is that of WR with the arena as the limit of each.
    Ws,
}

impl WorkspacePolicy {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Wr, Self::Wd, Self::Ws];
}

chosen_by_name!(WorkspacePolicy, "workspace policy" { Wr: "wr", Wd: "wd", Ws: "ws" } "wr, wd or ws");

/// What divides the total of WD. Both find the fastest division there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WdSolver {
    /// Our exact method for this very problem: the fastest by far.
    #[default]
    Exact,
    /// The paper's 0-1 ILP, by a general ILP solver.
    Ilp,
}

chosen_by_name!(WdSolver, "WD solver" { Exact: "exact", Ilp: "ilp" } "exact or ilp");
