//! WS: one arena that all kernels use in turn.
//!
//! Kernels of one stream never overlap, so an arena of M bytes gives every kernel M: each is then chosen as
//! under WR with the arena as its limit, and all lie at offset zero. At an equal total this is never slower
//! than WD, where a kernel's segment is at most the total.
//!
//! Whoever knows the schedule can give more: at its own step a kernel may have whatever of the device's memory no
//! buffer holds then, so that every kernel has a limit of its own ([`plan_within`](crate::plan_within)).

use crate::error::PlanError;
use crate::problem::Problem;
use crate::units::Bytes;
use crate::wr::{self, Choice};

/// The fastest configuration of every kernel, in order, that fits an arena of `arena` bytes.
pub(crate) fn choose(problem: &Problem<'_>, arena: Bytes) -> Result<Vec<Choice>, PlanError> {
    wr::choose(problem, |_| arena)
}
