//! WD by an ILP solver, as the paper does it: the independent check of our exact method.

use good_lp::solvers::SolutionStatus;
use good_lp::{Expression, ProblemVariables, Solution, Solver, SolverModel, Variable, variable};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::knapsack::{Alternative, Division, divide_exact};
use crate::reduction::Reduced;
use crate::relaxation::Point;
use crate::units::Bytes;

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
/// Few variables reach the solver. What no division faster than the one of [`divide_exact`] can contain is left out,
/// and groups are joined to make that more; a variable then says that a set of groups makes a certain change to that
/// division. None of this changes the answer.
///
/// # Errors
/// When the least workspaces do not fit, or the solver fails or returns anything but a proven optimum.
pub fn divide_ilp<S: Solver>(
    groups: &[Vec<Alternative>],
    total: Bytes,
    solver: S,
) -> Result<Division, DivideError> {
    let reduced = Reduced::new(groups, total).ok_or(DivideError::Infeasible(total))?;
    solve(groups, total, &reduced, solver)
}

/// The fastest of the divisions that are left.
fn solve<S: Solver>(
    groups: &[Vec<Alternative>],
    total: Bytes,
    reduced: &Reduced,
    solver: S,
) -> Result<Division, DivideError> {
    let mut variables = ProblemVariables::new();
    let changes: Vec<Change> = changes(reduced, &mut variables);
    if changes.is_empty() {
        return Ok(reduced.known.clone());
    }
    // In units of the gap and in MiB: solvers work to absolute tolerances of 1e-8 or so.
    let gap_ms = reduced.known.time_ms - reduced.known.lower_bound_ms;
    let mib = |bytes: i64| bytes as f64 / Bytes::mib(1).0 as f64;
    let time: Expression = changes.iter().map(|change| change.to.time_ms / gap_ms * change.binary).sum();
    let workspace: Expression = changes.iter().map(|change| mib(change.to.workspace) * change.binary).sum();

    let mut model = variables.minimise(time).using(solver);
    model.add_constraint(workspace.leq(mib(reduced.free)));
    let of_one_set = changes.chunk_by(|a, b| a.set == b.set);
    for set in of_one_set.filter(|set| set.len() > 1) {
        model.add_constraint(set.iter().map(|change| change.binary).sum::<Expression>().leq(1.0));
    }
    let solution = model.solve().map_err(|error| failed::<S>(&error))?;
    // One that makes two changes to a set breaks a constraint: no solver calls it optimal.
    let made = changes.iter().filter(|change| solution.value(change.binary) > 0.5);
    let division = reduced.with_changes(groups, made.map(|change| change.to));
    let refused = match solution.status() {
        SolutionStatus::Optimal if division.workspace(groups) <= total => return Ok(division),
        SolutionStatus::Optimal => "it exceeds the total workspace",
        _ => "it stopped early",
    };
    Err(DivideError::NotOptimal { solver: S::name(), reason: refused })
}

/// That a set of groups makes this change to the known division: a variable of the ILP.
struct Change {
    binary: Variable,
    set: usize,
    to: Point,
}

/// The changes left, set by set. None at all is where a solver may start: the known division.
fn changes(reduced: &Reduced, variables: &mut ProblemVariables) -> Vec<Change> {
    let changes = reduced.changes();
    changes
        .map(|(set, to)| Change { binary: variables.add(variable().binary().initial(0)), set, to })
        .collect()
}

fn failed<S: Solver>(error: &impl std::error::Error) -> DivideError {
    DivideError::Solver { solver: S::name(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relaxation::Relaxation;

    /// Five to twenty groups of up to eight alternatives, time falling with workspace.
    fn groups(mut below: impl FnMut(u64) -> u64) -> Vec<Vec<Alternative>> {
        let group = |size: u64, slowest: u64, below: &mut dyn FnMut(u64) -> u64| -> Vec<Alternative> {
            let alternative = |step: u64| {
                let noise = (1000 + below(20)) as f64 / 1000.0;
                let time_ms = noise * slowest as f64 / (1.0 + step as f64);
                Alternative { time_ms, workspace: Bytes::mib(step * (1 + below(3))) }
            };
            (0..size).map(alternative).collect()
        };
        (0..5 + below(16))
            .map(|_| {
                let (size, slowest) = (1 + below(8), 1 + below(100));
                group(size, slowest, &mut below)
            })
            .collect()
    }

    #[test]
    fn the_answer_is_the_fastest_division_whichever_was_known() {
        let mut state = 1u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let (mut improved, mut asked) = (0, 0);
        for _ in 0..3000 {
            let groups = groups(&mut below);
            let total = Bytes::mib(below(12 * groups.len() as u64));
            let relaxation = Relaxation::new(&groups, total).unwrap();
            let exact_ms = divide_exact(&groups, total).unwrap().time_ms;
            for known in [vec![0; groups.len()], relaxation.base.clone(), relaxation.greedy.clone()] {
                let reduced = Reduced::around(&groups, &relaxation, &known);
                let microlp = |problem| {
                    asked += 1;
                    good_lp::microlp(problem)
                };
                let division = solve(&groups, total, &reduced, microlp).unwrap();
                improved += usize::from(division.time_ms < reduced.known.time_ms);
                assert!(division.workspace(&groups) <= total);
                assert!((division.time_ms - exact_ms).abs() <= 1e-7 * exact_ms, "{known:?}");
            }
        }
        assert!(improved > 500 && asked > 500, "{improved} better ones found by asking {asked} times");
    }
}
