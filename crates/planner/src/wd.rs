//! WD: one total, divided among all kernels.
//!
//! A multiple-choice knapsack: of every kernel's desirable set exactly one configuration, least time in all,
//! sum of workspaces at most the total (the paper's 0-1 ILP). Solved by our own exact method or, as the paper
//! does it, by an ILP solver.

use good_lp::solvers::SolutionStatus;
use good_lp::{Expression, ProblemVariables, Solution, Solver, SolverModel, Variable, variable};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::desirable::DesirableSet;
use crate::dp::{collect_desirable, faster};
use crate::error::PlanError;
use crate::explain::Explanation;
use crate::knapsack::{Alternative, Division, divide_exact};
use crate::micro::Measurement;
use crate::plan::ARENA_ALIGNMENT;
use crate::problem::{Candidates, Problem};
use crate::reduction::Reduced;
use crate::units::Bytes;
use crate::wr::Choice;

/// How the 0-1 ILP of WD is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IlpMethod {
    /// Our exact method for this very problem: the fastest by far.
    #[default]
    Exact,
    /// The paper's formulation, through good_lp and its pure-Rust solver microlp: the independent check. Any other
    /// solver of good_lp can be passed to [`divide_ilp`] or [`plan_with_solver`](crate::plan_with_solver).
    GoodLp,
    /// The same through HiGHS, with the cargo feature `highs`, which is off: it compiles HiGHS from source and
    /// so needs a C++ compiler, cmake and libclang.
    #[cfg(feature = "highs")]
    Highs,
}

impl IlpMethod {
    /// Divides `total` among `groups` by this method: the fastest division there is.
    ///
    /// # Errors
    /// When a group is empty or the least workspaces do not fit, or the ILP solver fails.
    pub fn divide(self, groups: &[Vec<Alternative>], total: Bytes) -> Result<Division, DivideError> {
        match self {
            IlpMethod::Exact => divide_exact(groups, total).ok_or(DivideError::Infeasible(total)),
            IlpMethod::GoodLp => divide_ilp(groups, total, good_lp::microlp),
            // Its default would be content with a gap of 1e-4.
            #[cfg(feature = "highs")]
            IlpMethod::Highs => {
                use good_lp::WithMipGap;
                divide_ilp(groups, total, |problem| {
                    good_lp::highs(problem).with_mip_gap(0.0).expect("no gap is a gap")
                })
            }
        }
    }
}

/// An ILP solver gave no optimal division.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum DivideError {
    /// Not even the least workspaces fit.
    #[error("the least workspaces exceed {0} together")]
    Infeasible(Bytes),
    /// It failed in its own words.
    #[error("the ILP solver {solver} failed: {reason}")]
    Solver {
        /// Its name.
        solver: &'static str,
        /// Its message.
        reason: String,
    },
    /// It stopped early or its answer breaks a constraint.
    #[error("the ILP solver {solver} gave no proven optimum: {reason}")]
    NotOptimal {
        /// Its name.
        solver: &'static str,
        /// What is wrong with the answer.
        reason: &'static str,
    },
}

/// A way to solve the ILP: the groups and the total in, one pick per group out.
pub(crate) type Divide<'d> = &'d mut dyn FnMut(&[Vec<Alternative>], Bytes) -> Result<Division, DivideError>;

/// Divides `total` among `groups` by the paper's 0-1 ILP: a binary variable per alternative, least sum of
/// times, exactly one alternative per group, sum of workspaces at most `total`. `solver` is any of good_lp's.
///
/// Few variables reach the solver. Those whose reduced cost proves that no division faster than the one of
/// [`divide_exact`] uses them are zero; of every group the alternative of the linear relaxation is taken unless
/// another one is, which makes its variable the complement of the others. Neither changes the answer.
///
/// # Errors
/// When the least workspaces do not fit, or the solver fails or returns anything but a proven optimum.
pub fn divide_ilp<S: Solver>(
    groups: &[Vec<Alternative>],
    total: Bytes,
    solver: S,
) -> Result<Division, DivideError> {
    let reduced = Reduced::new(groups, total).ok_or(DivideError::Infeasible(total))?;
    // Without a gap between them the bound is the proof.
    let Division { time_ms, lower_bound_ms, .. } = reduced.known;
    if !faster(lower_bound_ms, time_ms) {
        return Ok(reduced.known);
    }
    let gap_ms = time_ms - lower_bound_ms;
    let mut variables = ProblemVariables::new();
    let changes: Vec<Change> = changes(groups, &reduced, &mut variables);
    // In units of the gap and in MiB: solvers work to absolute tolerances of 1e-8 or so.
    let time: Expression = changes.iter().map(|change| change.time_ms / gap_ms * change.binary).sum();
    let workspace: Expression = changes.iter().map(|change| change.workspace_mib * change.binary).sum();
    let base: Bytes = std::iter::zip(groups, &reduced.base).map(|(group, &pick)| group[pick].workspace).sum();

    let mut model = variables.minimise(time).using(solver);
    model.add_constraint(workspace.leq(total.saturating_sub(base).as_mib()));
    let of_one_group = changes.chunk_by(|a, b| a.group == b.group);
    for group in of_one_group.filter(|group| group.len() > 1) {
        model.add_constraint(group.iter().map(|change| change.binary).sum::<Expression>().leq(1.0));
    }
    let solution = model.solve().map_err(|error| failed::<S>(&error))?;
    let division = taken(groups, &reduced, &changes, &solution);
    let refused = match solution.status() {
        SolutionStatus::Optimal if division.workspace(groups) <= total => return Ok(division),
        SolutionStatus::Optimal => "it exceeds the total workspace",
        _ => "it stopped early",
    };
    Err(DivideError::NotOptimal { solver: S::name(), reason: refused })
}

/// That a group takes another alternative than in the relaxed solution: a variable of the ILP.
struct Change {
    binary: Variable,
    group: usize,
    /// The other alternative.
    index: usize,
    time_ms: f64,
    workspace_mib: f64,
}

/// The changes left, group by group.
fn changes(groups: &[Vec<Alternative>], reduced: &Reduced, variables: &mut ProblemVariables) -> Vec<Change> {
    let mut changes = Vec::new();
    for (group, others) in reduced.others.iter().enumerate() {
        let from = groups[group][reduced.base[group]];
        changes.extend(others.iter().map(|&index| {
            let to = groups[group][index];
            let workspace_mib = to.workspace.as_mib() - from.workspace.as_mib();
            let binary = variables.add(variable().binary());
            Change { binary, group, index, time_ms: to.time_ms - from.time_ms, workspace_mib }
        }));
    }
    changes
}

/// The division that a solution describes. One that makes two changes to a group breaks a constraint: no solver
/// calls it optimal.
fn taken(
    groups: &[Vec<Alternative>],
    reduced: &Reduced,
    changes: &[Change],
    solution: &impl Solution,
) -> Division {
    let mut picks = reduced.base.clone();
    for change in changes.iter().filter(|change| solution.value(change.binary) > 0.5) {
        picks[change.group] = change.index;
    }
    reduced.known.with_picks(groups, picks)
}

fn failed<S: Solver>(error: &impl std::error::Error) -> DivideError {
    DivideError::Solver { solver: S::name(), reason: error.to_string() }
}

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
