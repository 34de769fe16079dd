//! WR: every kernel on its own, under one limit per kernel.

use crate::configuration::Configuration;
use crate::error::PlanError;
use crate::explain::Explanation;
use crate::micro::Measurement;
use crate::problem::{Candidates, Problem};
use crate::units::Bytes;

/// What a policy decided for one kernel.
#[derive(Clone)]
pub(crate) struct Choice {
    pub(crate) configuration: Configuration,
    pub(crate) undivided: Option<Measurement>,
    pub(crate) explanation: Explanation,
}

/// The fastest configuration of every kernel, in order, that needs at most `limit`. Identical kernels get the
/// same.
pub(crate) fn choose(problem: &Problem<'_>, limit: Bytes) -> Result<Vec<Choice>, PlanError> {
    let choices: Vec<Choice> = problem
        .distinct
        .iter()
        .map(|candidates| {
            choose_one(candidates, limit).ok_or_else(|| candidates.infeasible(limit, problem.options))
        })
        .collect::<Result<_, PlanError>>()?;
    Ok(problem.of_kernel.iter().map(|&index| choices[index].clone()).collect())
}

fn choose_one(candidates: &Candidates<'_>, limit: Bytes) -> Option<Choice> {
    let mut sweep = candidates.sweep();
    sweep.raise_limit(limit);
    let configuration = sweep.configuration()?;
    sweep.raise_limit(Bytes::MAX);
    let explanation = Explanation::new(&configuration, sweep.configuration()?, limit);
    Some(Choice { configuration, undivided: candidates.undivided_within(limit).cloned(), explanation })
}
