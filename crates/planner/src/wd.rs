//! WD: one total, divided among all kernels.
//!
//! A multiple-choice knapsack: of every kernel's desirable set exactly one configuration, least time in all,
//! sum of workspaces at most the total (the paper's 0-1 ILP). Solved by our own exact method or, as the paper
//! does it, by an ILP solver.

use good_lp::{Expression, ProblemVariables, Solution, Solver, SolverModel, Variable, variable};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::desirable::DesirableSet;
use crate::dp::collect_desirable;
use crate::error::PlanError;
use crate::explain::Explanation;
use crate::knapsack::{Alternative, Division, Reduced, divide_exact};
use crate::micro::Measurement;
use crate::plan::ARENA_ALIGNMENT;
use crate::problem::{Candidates, Problem};
use crate::units::Bytes;
use crate::wr::Choice;

/// How the 0-1 ILP of WD is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IlpMethod {
    /// Our exact method for this very problem: the fastest by far.
    #[default]
    Exact,
    /// The paper's formulation, through good_lp and its pure-Rust solver microlp: the independent check. Of
    /// good_lp's other solvers HiGHS and CBC need a C++ tool chain or system libraries; whoever has them
    /// passes one to [`divide_ilp`] or [`plan_with_solver`](crate::plan_with_solver).
    GoodLp,
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
/// Most variables never reach the solver: those whose reduced cost proves that no division better than a good
/// one uses them are zero in the answer. That does not change it.
///
/// # Errors
/// When the least workspaces do not fit, or the solver fails or returns anything but a proven optimum.
pub fn divide_ilp<S: Solver>(
    groups: &[Vec<Alternative>],
    total: Bytes,
    solver: S,
) -> Result<Division, DivideError> {
    let reduced = Reduced::new(groups, total).ok_or(DivideError::Infeasible(total))?;
    let kept = &reduced.kept;
    let mut variables = ProblemVariables::new();
    let binaries: Vec<Vec<Variable>> =
        kept.iter().map(|group| variables.add_vector(variable().binary(), group.len())).collect();
    let alternatives = || {
        let pairs = std::iter::zip(&binaries, std::iter::zip(groups, kept));
        pairs.flat_map(|(binaries, (group, kept))| {
            std::iter::zip(binaries, kept).map(|(&binary, &index)| (binary, &group[index]))
        })
    };
    let time: Expression = alternatives().map(|(binary, choice)| choice.time_ms * binary).sum();
    // In MiB: solvers check constraints to about 1e-8, which is then far below a byte.
    let workspace: Expression =
        alternatives().map(|(binary, choice)| choice.workspace.as_mib() * binary).sum();

    let mut model = variables.minimise(time).using(solver).with(workspace.leq(total.as_mib()));
    for group in &binaries {
        model.add_constraint(group.iter().sum::<Expression>().eq(1.0));
    }
    let solution = model.solve().map_err(|error| failed::<S>(&error))?;
    if !matches!(solution.status(), good_lp::solvers::SolutionStatus::Optimal) {
        return Err(DivideError::NotOptimal { solver: S::name(), reason: "it stopped early" });
    }
    let picked = |(binaries, kept): (&Vec<Variable>, &Vec<usize>)| Some(kept[picked(&solution, binaries)?]);
    let picks: Option<Vec<usize>> = std::iter::zip(&binaries, kept).map(picked).collect();
    let reason = "it does not pick one configuration per kernel";
    let picks = picks.ok_or(DivideError::NotOptimal { solver: S::name(), reason })?;
    let division = reduced.greedy.with_picks(groups, picks);
    if division.workspace(groups) > total {
        return Err(DivideError::NotOptimal { solver: S::name(), reason: "it exceeds the total workspace" });
    }
    Ok(division)
}

fn failed<S: Solver>(error: &impl std::error::Error) -> DivideError {
    DivideError::Solver { solver: S::name(), reason: error.to_string() }
}

/// The one binary of a group that is 1.
fn picked(solution: &impl Solution, group: &[Variable]) -> Option<usize> {
    let mut ones = (0..group.len()).filter(|&index| solution.value(group[index]) > 0.5);
    ones.next().filter(|_| ones.next().is_none())
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
        .map(|candidates| {
            front(candidates, total).ok_or_else(|| candidates.infeasible(total, problem.options))
        })
        .collect::<Result<_, PlanError>>()?;
    let groups: Vec<Vec<Alternative>> =
        problem.of_kernel.iter().map(|&index| fronts[index].alternatives.clone()).collect();
    check_total(problem, &groups, total)?;
    let division = divide(&groups, total)?;
    let slack = total.saturating_sub(division.workspace(&groups));
    let undivided = divide_undivided(problem, total);
    let choices = std::iter::zip(&problem.of_kernel, &division.picks).zip(undivided).map(
        |((&index, &pick), undivided)| {
            let Front { set, alternatives, fastest } = &fronts[index];
            let configuration = set.iter().nth(pick).expect("a pick is an index of the set").clone();
            let available = alternatives[pick].workspace + slack;
            let explanation = Explanation::new(&configuration, fastest.clone(), available);
            Choice { configuration, undivided, explanation }
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

/// Names the neediest kernel if not even the least workspaces fit.
fn check_total(problem: &Problem<'_>, groups: &[Vec<Alternative>], total: Bytes) -> Result<(), PlanError> {
    let least: Vec<Bytes> = groups
        .iter()
        .map(|group| group.iter().map(|choice| choice.workspace).min().unwrap_or_default())
        .collect();
    let smallest: Bytes = least.iter().copied().sum();
    if smallest <= total {
        return Ok(());
    }
    let neediest = (0..least.len()).max_by_key(|&kernel| (least[kernel], std::cmp::Reverse(kernel)));
    let kernel = neediest.unwrap_or_default();
    Err(PlanError::TotalInfeasible {
        kernels: groups.len(),
        total,
        smallest,
        neediest: problem.distinct[problem.of_kernel[kernel]].kernel.to_string(),
        needs: least[kernel],
    })
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
