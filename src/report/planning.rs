//! A plan as a whole.

use super::{
    kernels::{KernelReport, explanations, kernel_table, legend},
    number::times,
};
use planner::{Bytes, DivisionReport, Plan, WdSolver, WorkspacePolicy};
use serde::Serialize;
use std::fmt;
use trainer::time::KernelTime;

/// What was chosen for every kernel, and what it adds up to.
#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    /// The batch-size policy.
    pub policy: String,
    /// The workspace policy.
    pub workspace_policy: WorkspacePolicy,
    /// Its limit.
    pub limit_bytes: u64,
    /// What divides the total of WD.
    pub wd_solver: WdSolver,
    /// The accuracy class that was asked for.
    pub max_error: Option<f32>,
    /// Whether the times come from measurements of another machine.
    pub prediction: bool,
    /// Every kernel, in the order of the net.
    pub kernels: Vec<KernelReport>,
    /// Planned time of all kernels.
    pub time_ms: f64,
    /// The same undivided, if every kernel can run undivided under the limit.
    pub undivided_time_ms: Option<f64>,
    /// The latter over the former.
    pub gain: Option<f64>,
    /// The workspace that is allocated: under WR and WS what all kernels share, under WD a segment for each.
    pub workspace_total_bytes: u64,
    /// What workspaces would take if each kernel had one of its own.
    pub workspace_separate_bytes: u64,
    /// Under WD, how the total was divided.
    pub division: Option<DivisionReport>,
}

impl PlanReport {
    /// Describes `plan`, with the times `measured` of its kernels if it has run.
    pub fn new(plan: &Plan, measured: &[KernelTime]) -> Self {
        let options = &plan.options;
        Self {
            policy: options.batch_size_policy.to_string(),
            workspace_policy: options.workspace_policy,
            limit_bytes: options.limit.0,
            wd_solver: options.wd_solver,
            max_error: options.max_error,
            prediction: false,
            kernels: plan.kernels.iter().map(|planned| KernelReport::new(planned, measured)).collect(),
            time_ms: plan.time_ms,
            undivided_time_ms: plan.undivided_time_ms,
            gain: plan.gain(),
            workspace_total_bytes: plan.workspace_total().0,
            workspace_separate_bytes: plan.workspace_separate().0,
            division: plan.division,
        }
    }

    /// The same as a prediction, if it is one.
    pub fn predicted(self, prediction: bool) -> Self {
        Self { prediction, ..self }
    }

    /// The policies in a line.
    pub fn policies(&self) -> String {
        let limit = Bytes(self.limit_bytes);
        let workspace = match self.workspace_policy {
            WorkspacePolicy::Wr => format!("WR, at most {limit} of workspace for each kernel"),
            WorkspacePolicy::Wd => format!("WD, {limit} of workspace divided among all kernels"),
            WorkspacePolicy::Ws => format!("WS, one arena of at most {limit} shared by all kernels"),
        };
        let accuracy = self.max_error.map(|error| format!(", errors up to {error:e}"));
        format!("{}; {workspace}{}", self.policy, accuracy.unwrap_or_default())
    }

    /// What all kernels take together, in a line.
    pub fn totals(&self) -> String {
        let [total, separate] = [self.workspace_total_bytes, self.workspace_separate_bytes].map(Bytes);
        let workspace = match self.workspace_policy {
            WorkspacePolicy::Wd => format!("workspace {total}, a segment for each kernel"),
            _ => format!("workspace {total}, shared by all kernels (separate ones would take {separate})"),
        };
        let planned = if self.prediction { "predicted" } else { "planned" };
        match (self.undivided_time_ms, self.gain) {
            (Some(undivided_ms), Some(gain)) => format!(
                "{planned} {:.1} ms, undivided {undivided_ms:.1} ms, gain {}; {workspace}",
                self.time_ms,
                times(gain)
            ),
            _ => format!("{planned} {:.1} ms; not every kernel fits undivided; {workspace}", self.time_ms),
        }
    }
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kernels.is_empty() {
            return write!(f, "The net has no convolution to plan.");
        }
        writeln!(f, "Convolution kernels ({}):", self.policies())?;
        writeln!(f, "{}", kernel_table(&self.kernels))?;
        if self.workspace_policy == WorkspacePolicy::Wd {
            let total = Bytes(self.limit_bytes);
            writeln!(
                f,
                "  undivided kernels share the same {total}, so that one may have more than in the plan, and be faster"
            )?;
        }
        legend(&self.kernels).map_or(Ok(()), |legend| writeln!(f, "{legend}"))?;
        write!(f, "  total: {}", self.totals())?;
        if let Some(DivisionReport { lower_bound_ms, binaries }) = self.division {
            let (solver, time_ms) = (self.wd_solver, self.time_ms);
            write!(
                f,
                "\n  optimal: {time_ms:.2} ms (LP bound {lower_bound_ms:.2}); {binaries} binary variables, "
            )?;
            match solver {
                WdSolver::Exact => write!(f, "solved by our exact method")?,
                WdSolver::Ilp => write!(f, "solved as an ILP by microlp")?,
            }
        }
        write!(f, "\n\n{}", explanations(&self.kernels))
    }
}
