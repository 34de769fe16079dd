//! WD: one total, divided among all kernels.
//!
//! A multiple-choice knapsack: of every kernel's desirable set exactly one configuration, least time in all,
//! sum of workspaces at most the total (the paper's 0-1 ILP). Solved by our own exact method (`knapsack`) or, as the
//! paper does it, by an ILP solver (`ilp`).

use crate::desirable::DesirableSet;
use crate::dp::collect_desirable;
use crate::error::PlanError;
use crate::explain::Explanation;
use crate::ilp::Divide;
use crate::knapsack::{Alternative, Division, divide_exact};
use crate::micro::Measurement;
use crate::plan::ARENA_ALIGNMENT;
use crate::problem::{Candidates, Problem};
use crate::units::Bytes;
use crate::wr::Choice;

/// The desirable set of one distinct kernel, as configurations and as the knapsack sees them.
struct Front {
    set: DesirableSet,
    alternatives: Vec<Alternative>,
    /// The fastest configuration of all, whatever it needs.
    fastest: crate::Configuration,
}

/// Divides `total` among all kernels; also says what leaving every kernel undivided would give.
pub(crate) fn choose(
    problem: &Problem<'_>,
    total: Bytes,
    divide: Divide<'_>,
) -> Result<(Vec<Choice>, Division), PlanError> {
    let fronts: Vec<Front> = problem
        .distinct
        .iter()
        .map(|candidates| front(candidates, total))
        .collect::<Option<_>>()
        .ok_or_else(|| too_small(problem, total))?;
    let groups: Vec<Vec<Alternative>> =
        problem.of_kernel.iter().map(|&index| fronts[index].alternatives.clone()).collect();
    if groups.iter().map(|group| least(group)).sum::<Bytes>() > total {
        return Err(too_small(problem, total));
    }
    let division = divide(&groups, total)?;
    let slack = total.saturating_sub(division.workspace(&groups));
    let undivided = divide_undivided(problem, total);
    let choices = std::iter::zip(&problem.of_kernel, &division.picks).zip(undivided).map(
        |((&index, &pick), undivided)| {
            let Front { set, alternatives, fastest } = &fronts[index];
            let configuration = set.iter().nth(pick).expect("a pick is an index of the set").clone();
            let available = alternatives[pick].workspace + slack;
            let explanation = Explanation::new(&configuration, fastest.clone(), available);
            Choice { configuration, undivided, available, explanation }
        },
    );
    Ok((choices.collect(), division))
}

/// What a segment of the arena for `workspace` takes.
fn segment(workspace: Bytes) -> Bytes {
    workspace.align_up(ARENA_ALIGNMENT)
}

fn front(candidates: &Candidates<'_>, total: Bytes) -> Option<Front> {
    let mut sweep = candidates.sweep();
    let mut set = DesirableSet::new();
    collect_desirable(&mut sweep, total, &mut set);
    sweep.raise_limit(Bytes::MAX);
    let fastest = sweep.configuration().filter(|_| !set.is_empty())?;
    Some(Front { alternatives: alternatives(&set), fastest, set })
}

/// A desirable set as the knapsack sees it: every configuration with its segment of the arena.
pub(crate) fn alternatives(set: &DesirableSet) -> Vec<Alternative> {
    let alternative = |configuration: &crate::Configuration| Alternative {
        time_ms: configuration.time_ms(),
        workspace: segment(configuration.workspace()),
    };
    set.iter().map(alternative).collect()
}

/// The least workspace of a group.
fn least(group: &[Alternative]) -> Bytes {
    group.iter().map(|choice| choice.workspace).min().unwrap_or_default()
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
    let neediest = of_kernel.iter().copied().max_by_key(|&index| (least[index], std::cmp::Reverse(index)));
    let neediest = neediest.unwrap_or_default();
    PlanError::TotalInfeasible {
        kernels: of_kernel.len(),
        total,
        smallest: of_kernel.iter().map(|&index| least[index]).sum(),
        neediest: problem.distinct[neediest].kernel.to_string(),
        needs: least[neediest],
    }
}

/// What every kernel would get if the same total were divided, as well as it can be, without micro-batching.
/// Kernels with no undivided algorithm get none; if what the others need does not fit, nobody does.
fn divide_undivided(problem: &Problem<'_>, total: Bytes) -> Vec<Option<Measurement>> {
    let offers: Vec<Vec<&Measurement>> =
        problem.distinct.iter().map(|kernel| kernel.undivided().collect()).collect();
    let group = |micros: &Vec<&Measurement>| -> Vec<Alternative> {
        let alternatives = micros
            .iter()
            .map(|micro| Alternative { time_ms: micro.time_ms, workspace: segment(micro.workspace) });
        alternatives.collect()
    };
    let takes_part = |&&index: &&usize| !offers[index].is_empty();
    let groups: Vec<_> =
        problem.of_kernel.iter().filter(takes_part).map(|&index| group(&offers[index])).collect();
    let Some(division) = divide_exact(&groups, total) else {
        return vec![None; problem.of_kernel.len()];
    };
    let mut picks = division.picks.into_iter();
    let pick = |&index: &usize| {
        let micros = &offers[index];
        if micros.is_empty() { None } else { picks.next().map(|pick| micros[pick].clone()) }
    };
    problem.of_kernel.iter().map(pick).collect()
}
