//! WR: every kernel on its own, under a limit of its own.
//!
//! Kernels of one stream never overlap, so one arena as large as the limit serves them all: WS is this with the arena
//! as everybody's limit. At an equal total it is never slower than WD, where a kernel's segment is at most the total.
//! A schedule can give more: at its own step a kernel may have whatever of the device's memory no
//! buffer holds then, so every kernel may have a limit of its own.

use super::{
    error::PlanError,
    explain::Explanation,
    problem::{Candidates, Problem},
};
use crate::model::{Bytes, Configuration, Measurement};
use std::{cmp::Reverse, collections::HashMap};

/// What a policy decided for one kernel.
#[derive(Clone)]
pub(crate) struct Choice {
    pub(crate) configuration: Configuration,
    pub(crate) undivided: Option<Measurement>,
    /// The workspace that it could have had.
    pub(crate) available: Bytes,
    pub(crate) explanation: Explanation,
}

/// The fastest configuration of every kernel, in order, that needs at most what `limit` gives the kernel of this index.
/// Identical kernels under equal limits get the same.
pub(crate) fn choose(
    problem: &Problem<'_>,
    limit: impl Fn(usize) -> Bytes,
) -> Result<Vec<Choice>, PlanError> {
    let mut known: HashMap<(usize, Bytes), Option<Choice>> = HashMap::new();
    let mut choices = Vec::with_capacity(problem.of_kernel.len());
    for (kernel, &index) in problem.of_kernel.iter().enumerate() {
        let limit = limit(kernel);
        let choice =
            known.entry((index, limit)).or_insert_with(|| choose_one(&problem.distinct[index], limit));
        choices.extend(choice.clone());
    }
    if choices.len() == problem.of_kernel.len() {
        return Ok(choices);
    }
    let refused = known.iter().filter(|(_, choice)| choice.is_none()).map(|(&key, _)| key);
    Err(neediest(problem, refused.collect()))
}

/// Of the refused (kernel, limit) pairs the one that lacks most: with equal limits its need is the smallest limit for
/// all.
fn neediest(problem: &Problem<'_>, refused: Vec<(usize, Bytes)>) -> PlanError {
    let lacking = |&(index, limit): &(usize, Bytes)| {
        // A kernel that nothing can run is the first thing to say.
        let least = problem.distinct[index].least_workspace().unwrap_or(Bytes::MAX);
        (least.saturating_sub(limit), Reverse(index))
    };
    let (index, limit) = refused.into_iter().max_by_key(lacking).expect("something was refused");
    problem.distinct[index].infeasible(limit, problem.options)
}

fn choose_one(candidates: &Candidates<'_>, limit: Bytes) -> Option<Choice> {
    let mut sweep = candidates.sweep();
    sweep.raise_limit(limit);
    let configuration = sweep.configuration()?;
    sweep.raise_limit(Bytes::MAX);
    let explanation = Explanation::new(&configuration, sweep.configuration()?, limit);
    let undivided = candidates.undivided_within(limit).cloned();
    Some(Choice { configuration, undivided, available: limit, explanation })
}
