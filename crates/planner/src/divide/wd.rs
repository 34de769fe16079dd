//! WD: one total, divided among all kernels.
//!
//! A multiple-choice knapsack: of every kernel's desirable set exactly one configuration, least time in all, sum of
//! workspaces at most the total. Solved by our own exact method (`knapsack`) or, as the paper does it, by an ILP solver
//! (`ilp`).

use super::{division::Division, ilp::divide_ilp, knapsack::divide_exact};
use crate::{
    choose::{Candidates, Choice, DivisionReport, Explanation, PlanError, Problem},
    model::{ARENA_ALIGNMENT, Bytes, Configuration, Cost, DesirableSet, Measurement, WdSolver},
};
use std::cmp::Reverse;

/// The desirable set of one distinct kernel, as configurations and as the knapsack sees them.
struct Front {
    set: DesirableSet,
    alternatives: Vec<Cost>,
    /// The fastest configuration of all, whatever it needs.
    fastest: Configuration,
}

/// Divides `total` among all kernels; also says what leaving every kernel undivided would give.
pub(crate) fn choose(
    problem: &Problem<'_>,
    total: Bytes,
) -> Result<(Vec<Choice>, DivisionReport), PlanError> {
    let fronts: Vec<Front> = problem
        .distinct
        .iter()
        .map(|candidates| front(candidates, total))
        .collect::<Option<_>>()
        .ok_or_else(|| too_small(problem, total))?;
    let groups: Vec<Vec<Cost>> =
        problem.of_kernel.iter().map(|&index| fronts[index].alternatives.clone()).collect();
    let solver = problem.options.wd_solver;
    let division = divide(solver, &groups, total)?.ok_or_else(|| too_small(problem, total))?;
    let slack = total.saturating_sub(division.workspace(&groups));
    let undivided = divide_undivided(problem, solver, total)?;
    let choices = std::iter::zip(&problem.of_kernel, &division.picks).zip(undivided).map(
        |((&index, &pick), undivided)| {
            let Front { set, alternatives, fastest } = &fronts[index];
            let configuration = set.iter().nth(pick).expect("a pick is an index of the set").clone();
            let available = alternatives[pick].workspace + slack;
            let explanation = Explanation::new(&configuration, fastest.clone(), available);
            Choice { configuration, undivided, available, explanation }
        },
    );
    let binaries = groups.iter().map(Vec::len).sum();
    Ok((choices.collect(), DivisionReport { lower_bound_ms: division.lower_bound_ms, binaries }))
}

/// The fastest division of `total`; none if not even the least workspaces fit.
fn divide(solver: WdSolver, groups: &[Vec<Cost>], total: Bytes) -> Result<Option<Division>, PlanError> {
    let least = |group: &Vec<Cost>| group.iter().map(|choice| choice.workspace).min().unwrap_or_default();
    match solver {
        _ if groups.iter().map(least).sum::<Bytes>() > total => Ok(None),
        WdSolver::Exact => Ok(divide_exact(groups, total)),
        WdSolver::Ilp => divide_ilp(groups, total).map(Some).map_err(|reason| {
            PlanError::Refused(format!("cannot divide the total workspace: the ILP solver {reason}"))
        }),
    }
}

/// What a segment of the arena for `workspace` takes.
pub(crate) fn segment(workspace: Bytes) -> Bytes {
    workspace.align_up(ARENA_ALIGNMENT)
}

fn front(candidates: &Candidates<'_>, total: Bytes) -> Option<Front> {
    let mut sweep = candidates.sweep();
    let set = sweep.desirable_set(total);
    sweep.raise_limit(Bytes::MAX);
    let fastest = sweep.configuration().filter(|_| !set.is_empty())?;
    Some(Front { alternatives: alternatives(&set), fastest, set })
}

/// A desirable set as the knapsack sees it: every configuration with its segment of the arena.
pub(crate) fn alternatives(set: &DesirableSet) -> Vec<Cost> {
    let alternative =
        |chosen: &Configuration| Cost { workspace: segment(chosen.workspace()), ..chosen.cost() };
    set.iter().map(alternative).collect()
}

/// Not even the least workspaces fit: names the total that they need, and the kernel that takes most of it.
fn too_small(problem: &Problem<'_>, total: Bytes) -> PlanError {
    let mut least = Vec::with_capacity(problem.distinct.len());
    for candidates in &problem.distinct {
        match candidates.least_workspace() {
            Some(workspace) => least.push(segment(workspace)),
            None => return candidates.infeasible(total, problem.options),
        }
    }
    let of_kernel = &problem.of_kernel;
    if let [only] = of_kernel[..] {
        return problem.distinct[only].infeasible(total, problem.options);
    }
    let need = |&index: &usize| (least[index], Reverse(index));
    let neediest = of_kernel.iter().copied().max_by_key(need).unwrap_or_default();
    let smallest: Bytes = of_kernel.iter().map(|&index| least[index]).sum();
    let message = format!(
        "{} kernels do not fit the total workspace of {} together: the smallest feasible total is {}, of which {} takes {}",
        of_kernel.len(),
        total.exact(),
        smallest.exact(),
        problem.distinct[neediest].kernel,
        least[neediest].exact(),
    );
    PlanError::Infeasible { smallest, message }
}

/// What every kernel would get if the same total were divided, as well as it can be, without micro-batching. Kernels
/// with no undivided algorithm get none; if what the others need does not fit, none does.
fn divide_undivided(
    problem: &Problem<'_>,
    solver: WdSolver,
    total: Bytes,
) -> Result<Vec<Option<Measurement>>, PlanError> {
    let offers: Vec<Vec<&Measurement>> =
        problem.distinct.iter().map(|kernel| kernel.undivided().collect()).collect();
    let cost = |micro: &&Measurement| Cost { time_ms: micro.time_ms, workspace: segment(micro.workspace) };
    let groups: Vec<Vec<Cost>> =
        problem.of_kernel.iter().map(|&index| offers[index].iter().map(cost).collect()).collect();
    let takes_part: Vec<Vec<Cost>> = groups.iter().filter(|group| !group.is_empty()).cloned().collect();
    let Some(division) = divide(solver, &takes_part, total)? else { return Ok(vec![None; groups.len()]) };
    let mut picks = division.picks.into_iter();
    let pick = |&index: &usize| {
        let micros = &offers[index];
        if micros.is_empty() { None } else { picks.next().map(|pick| micros[pick].clone()) }
    };
    Ok(problem.of_kernel.iter().map(pick).collect())
}
