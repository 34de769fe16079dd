//! WR: every kernel on its own, under a limit of its own.
//!
//! Kernels of one stream never overlap, so one arena as large as the limit serves them all: WS is this with the arena
//! as everybody's limit. At an equal total it is never slower than WD, where a kernel's segment is at most the total.
//! A schedule can give more: at its own step a kernel may have whatever of the device's memory no
//! buffer holds then, so every kernel may have a limit of its own.

use super::fronts::{Fronts, first_largest};
use super::options::{PlanError, PlanOptions};
use super::plan::PlannedKernel;
use crate::model::{Bytes, WorkspacePolicy};

/// The fastest configuration of every kernel, in order, that needs at most what `limit` gives the kernel of this index.
pub(crate) fn choose(
    fronts: &Fronts,
    options: &PlanOptions,
    limit: impl Fn(usize) -> Bytes,
) -> Result<Vec<PlannedKernel>, PlanError> {
    let planned = fronts.fronts().enumerate().map(|(index, (kernel, front))| {
        let (limit, undivided) = (limit(index), front.undivided_within(limit(index)));
        Some(PlannedKernel::new(kernel, front, front.set.fastest_within(limit)?, limit, undivided))
    });
    planned.collect::<Option<_>>().ok_or_else(|| {
        // Of the kernels that lack something the one that lacks most: its need is the smallest limit for all.
        let needs = fronts.needs(WorkspacePolicy::Wr);
        let lacking = needs.iter().enumerate().map(|(kernel, need)| need.saturating_sub(limit(kernel)));
        let neediest = first_largest(&lacking.collect::<Vec<_>>()).unwrap_or_default();
        let policy = options.batch_size_policy;
        PlanError::beyond(&fronts.kernels[neediest], policy, limit(neediest), needs[neediest])
    })
}
