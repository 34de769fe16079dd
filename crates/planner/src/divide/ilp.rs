//! WD as the paper solves it (§III-C): a 0-1 integer linear programme, given to a general solver.
//!
//! It shares nothing with the exact method but what it is given, so that each checks the other.

use super::division::Division;
use crate::model::{Bytes, Cost};
use good_lp::{
    Expression, ProblemVariables, Solution, SolverModel, Variable, microlp, solvers::SolutionStatus, variable,
};

/// The fastest division of `total` among `groups`.
///
/// # Errors
/// In a sentence that begins with the solver's name: it failed, as where nothing fits, or gave no proven optimum.
pub fn divide_ilp(groups: &[Vec<Cost>], total: Bytes) -> Result<Division, String> {
    let relaxed = solve(groups, total, false)?;
    let solved = solve(groups, total, true)?;
    let picks = solved.iter().map(|shares| shares.iter().position(|&share| share > 0.5));
    let bound_ms = std::iter::zip(groups, relaxed).flat_map(|(group, shares)| std::iter::zip(group, shares));
    let bound_ms = bound_ms.map(|(choice, share)| share * choice.time_ms).sum();
    let division = picks.collect::<Option<_>>().map(|picks| Division::new(groups, picks, bound_ms));
    let fits = |division: &Division| division.workspace(groups) <= total;
    division.filter(fits).ok_or_else(|| "microlp broke a constraint".to_owned())
}

/// The share of each choice of each group in the solution: zero or one, or between if not `binary` (the relaxation).
fn solve(groups: &[Vec<Cost>], total: Bytes, binary: bool) -> Result<Vec<Vec<f64>>, String> {
    let mut variables = ProblemVariables::new();
    // x[k][c] = 1 if kernel k gets its configuration c.
    let kind = || if binary { variable().binary() } else { variable().min(0.0).max(1.0) };
    let x = groups.iter().map(|group| variables.add_vector(kind(), group.len()));
    let x: Vec<Vec<Variable>> = x.collect();
    let sum = |value: fn(&Cost) -> f64| -> Expression {
        let pairs = std::iter::zip(groups, &x).flat_map(|(group, x)| std::iter::zip(group, x));
        pairs.map(|(choice, &x)| value(choice) * x).sum()
    };
    // minimise    sum of time(k, c) x[k][c]
    let mut model = variables.minimise(sum(|choice| choice.time_ms)).using(microlp);
    // subject to  sum of workspace(k, c) x[k][c] <= total
    model.add_constraint(sum(|choice| choice.workspace.as_mib()).leq(total.as_mib()));
    //             sum over c of x[k][c] = 1    for every kernel k
    for x in &x {
        model.add_constraint(x.iter().sum::<Expression>().eq(1.0));
    }
    let solution = model.solve().map_err(|error| format!("microlp failed: {error}"))?;
    if !matches!(solution.status(), SolutionStatus::Optimal) {
        return Err("microlp stopped before it had an optimum".to_owned());
    }
    Ok(x.iter().map(|x| x.iter().map(|&x| solution.value(x)).collect()).collect())
}
