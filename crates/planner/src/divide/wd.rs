//! WD: one total, divided among all kernels.
//!
//! A multiple-choice knapsack: of every kernel's desirable set exactly one configuration, least time in all, sum of
//! workspaces at most the total. Solved by our exact method (`knapsack`) or, as in the paper, an ILP solver (`ilp`).

use super::{division::Division, ilp::divide_ilp, knapsack::divide_exact};
use crate::choose::{DivisionReport, Fronts, PlanError, PlanOptions, PlannedKernel, first_largest};
use crate::model::{Bytes, Cost, Measurement, WdSolver, WorkspacePolicy};

/// Divides the total of `options` among all kernels; also says what leaving every kernel undivided would give.
pub(crate) fn choose(
    fronts: &Fronts,
    options: &PlanOptions,
) -> Result<(Vec<PlannedKernel>, DivisionReport), PlanError> {
    let (solver, total) = (options.wd_solver, options.limit);
    let groups = fronts.groups(total);
    let division = divide(solver, &groups, total)?.ok_or_else(|| too_small(fronts, options))?;
    let slack = total.saturating_sub(division.workspace(&groups));
    let undivided = divide_undivided(fronts, solver, total)?;
    let picks = std::iter::zip(&groups, division.picks).zip(undivided);
    let planned = fronts.fronts().zip(picks).map(|((kernel, front), ((group, pick), undivided))| {
        let available = group[pick].workspace + slack;
        PlannedKernel::new(kernel, front, &front.set[pick], available, undivided)
    });
    let binaries = groups.iter().map(Vec::len).sum();
    Ok((planned.collect(), DivisionReport { lower_bound_ms: division.lower_bound_ms, binaries }))
}

/// The fastest division of `total`; none if not even the least workspaces fit.
fn divide(solver: WdSolver, groups: &[Vec<Cost>], total: Bytes) -> Result<Option<Division>, PlanError> {
    let least = groups.iter().map(|group| group.iter().map(|choice| choice.workspace).min());
    match solver {
        _ if least.sum::<Option<Bytes>>().is_none_or(|least| least > total) => Ok(None),
        WdSolver::Exact => Ok(divide_exact(groups, total)),
        WdSolver::Ilp => divide_ilp(groups, total).map(Some).map_err(|reason| {
            PlanError::Refused(format!("cannot divide the total workspace: the ILP solver {reason}"))
        }),
    }
}

/// Not even the least workspaces fit: names the total that they need, and the kernel that takes most of it.
fn too_small(fronts: &Fronts, options: &PlanOptions) -> PlanError {
    let needs = fronts.needs(WorkspacePolicy::Wd);
    let neediest = first_largest(&needs).unwrap_or_default();
    let (kernel, need, total) = (&fronts.kernels[neediest], needs[neediest], options.limit);
    if let [smallest] = needs[..] {
        return PlanError::beyond(kernel, options.batch_size_policy, total, smallest);
    }
    let smallest: Bytes = needs.iter().copied().sum();
    PlanError::Refused(format!(
        "{} kernels do not fit the total workspace of {} together: the smallest feasible total is {}, of which {kernel} takes {}",
        needs.len(),
        total.exact(),
        smallest.exact(),
        need.exact(),
    ))
}

/// What every kernel would get if the same total were divided, as well as it can be, without micro-batching. Kernels
/// with no undivided algorithm get none; if what the others need does not fit, none does.
fn divide_undivided(
    fronts: &Fronts,
    solver: WdSolver,
    total: Bytes,
) -> Result<Vec<Option<&Measurement>>, PlanError> {
    let cost = |micro: &Measurement| Cost { time_ms: micro.time_ms, workspace: micro.workspace.aligned() };
    let offers = || fronts.fronts().map(|(_, front)| &front.undivided);
    let takes_part = offers().filter(|micros| !micros.is_empty());
    let groups: Vec<Vec<Cost>> = takes_part.map(|micros| micros.iter().map(cost).collect()).collect();
    let division = divide(solver, &groups, total)?;
    let mut picks = division.into_iter().flat_map(|division| division.picks);
    let undivided = offers().map(|micros| if micros.is_empty() { None } else { micros.get(picks.next()?) });
    Ok(undivided.collect())
}
