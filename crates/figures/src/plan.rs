//! A plan: what each convolution kernel got and why, and what it adds up to; and two of them side by side.

use crate::number::{deviation, ms, times};
use crate::table::Table;
use planner::{
    Bytes, DivisionReport, Explanation, Plan, PlanOptions, PlannedKernel, WdSolver, WorkspacePolicy,
};
use serde::Serialize;
use std::fmt;

/// One kernel of a plan, and what it took.
#[derive(Clone, Debug, Serialize)]
pub struct KernelReport {
    /// What the plan says: the kernel, its configuration as a list of runs, its workspace, what it would be undivided.
    #[serde(flatten)]
    pub planned: PlannedKernel,
    /// The configuration in words, as in `4x60 FFT_TILING + 16 IMPLICIT_GEMM`.
    pub division: String,
    /// Planned time: the sum of what was measured of its parts.
    pub planned_ms: f64,
    /// Its time in the net, the median over the iterations, if it has run.
    pub measured_ms: Option<f64>,
    /// How many times faster than undivided the plan is.
    pub gain: Option<f64>,
    /// In words, why it did not get something faster.
    pub reason: String,
}

impl KernelReport {
    /// Layer and operation, as in `conv2 Forward`.
    pub fn name(&self) -> String {
        self.planned.kernel.to_string()
    }
}

/// What was chosen for every kernel, and what it adds up to.
#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    /// What was asked for.
    pub options: PlanOptions,
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
    pub workspace_total: Bytes,
    /// What workspaces would take if each kernel had one of its own.
    pub workspace_separate: Bytes,
    /// Under WD, how the total was divided.
    pub division: Option<DivisionReport>,
}

impl PlanReport {
    /// Describes `plan`, with the times `measured_ms` of its kernels, in order, if it has run.
    pub fn new(plan: &Plan, measured_ms: &[f64]) -> Self {
        let kernels = plan.kernels.iter().enumerate();
        let kernel = |(place, planned): (usize, &PlannedKernel)| KernelReport {
            division: planned.configuration.to_string(),
            planned_ms: planned.time_ms(),
            measured_ms: measured_ms.get(place).copied(),
            gain: planned.gain(),
            reason: planned.explanation.to_string(),
            planned: planned.clone(),
        };
        Self {
            options: plan.options.clone(),
            prediction: false,
            kernels: kernels.map(kernel).collect(),
            time_ms: plan.time_ms,
            undivided_time_ms: plan.undivided_time_ms,
            gain: plan.gain(),
            workspace_total: plan.workspace_total(),
            workspace_separate: plan.workspace_separate(),
            division: plan.division,
        }
    }

    /// The policies in a line.
    pub fn policies(&self) -> String {
        let PlanOptions { batch_size_policy, max_error, deterministic_only, .. } = &self.options;
        let workspace = workspace_given(&self.options);
        let accuracy = max_error.map(|error| format!(", errors up to {error:e}"));
        let repeatable = if *deterministic_only { ", deterministic algorithms alone" } else { "" };
        format!("{batch_size_policy}; {workspace}{}{repeatable}", accuracy.unwrap_or_default())
    }

    /// What all kernels take together, in a line.
    pub fn totals(&self) -> String {
        let Self { workspace_total: total, workspace_separate: separate, time_ms, .. } = self;
        let workspace = match self.options.workspace_policy {
            WorkspacePolicy::Wd => format!("workspace {total}, a segment for each kernel"),
            _ => format!("workspace {total}, shared by all kernels (separate ones would take {separate})"),
        };
        let planned = if self.prediction { "predicted" } else { "planned" };
        let undivided = match self.undivided_time_ms.zip(self.gain) {
            Some((undivided_ms, gain)) => format!(", undivided {undivided_ms:.1} ms, gain {}", times(gain)),
            None => "; not every kernel fits undivided".to_owned(),
        };
        format!("{planned} {time_ms:.1} ms{undivided}; {workspace}")
    }
}

/// How workspace is given, in a few words.
pub(crate) fn workspace_given(options: &PlanOptions) -> String {
    let limit = options.limit.exact();
    match options.workspace_policy {
        WorkspacePolicy::Wr => format!("WR, at most {limit} of workspace for each kernel"),
        WorkspacePolicy::Wd => format!("WD, {limit} of workspace divided among all kernels"),
        WorkspacePolicy::Ws => format!("WS, one arena of at most {limit} shared by all kernels"),
    }
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kernels.is_empty() {
            return write!(f, "The net has no convolution to plan.");
        }
        writeln!(f, "Convolution kernels ({}):\n{}", self.policies(), kernel_table(&self.kernels))?;
        let PlanOptions { workspace_policy, limit, wd_solver, .. } = self.options;
        if workspace_policy == WorkspacePolicy::Wd {
            write!(f, "  undivided kernels share the same {limit}, ")?;
            writeln!(f, "so that one may have more than in the plan, and be faster")?;
        }
        write!(f, "  total: {}", self.totals())?;
        if let Some(DivisionReport { lower_bound_ms, binaries }) = self.division {
            let solver = match wd_solver {
                WdSolver::Exact => "by our exact method",
                WdSolver::Ilp => "as an ILP by microlp",
            };
            write!(f, "\n  optimal: {:.2} ms (LP bound {lower_bound_ms:.2}); ", self.time_ms)?;
            write!(f, "{binaries} binary variables, solved {solver}")?;
        }
        write!(f, "\n\n{}", explanations(&self.kernels))
    }
}

/// All kernels, one a line; with measured times if they have run.
pub fn kernel_table(kernels: &[KernelReport]) -> Table {
    let ran = kernels.iter().any(|kernel| kernel.measured_ms.is_some());
    let run = if ran { &[">run ms", ">deviation"][..] } else { &[] };
    let rest = [">workspace", ">undivided ms", ">gain", ">max rel. error"];
    let first = ["kernel", "configuration", ">plan ms"];
    let mut table = Table::new(first.iter().chain(run).chain(&rest).copied());
    for kernel in kernels {
        let KernelReport { planned, planned_ms, measured_ms, .. } = kernel;
        let mut row = vec![kernel.name(), kernel.division.clone(), ms(*planned_ms)];
        if ran {
            row.extend([ms(*measured_ms), deviation(measured_ms.unwrap_or(f64::NAN), *planned_ms)]);
        }
        row.extend([
            planned.workspace.to_string(),
            ms(planned.undivided.as_ref().map(|micro| micro.time_ms)),
            times(kernel.gain),
            format!("{:.0e}", planned.configuration.max_error()),
        ]);
        table.row(row);
    }
    table
}

/// Why kernels did not get something faster, one a line; those that have the fastest are only counted.
fn explanations(kernels: &[KernelReport]) -> String {
    let is_slower = |kernel: &&KernelReport| kernel.planned.explanation != Explanation::FastestMeasured;
    let slower: Vec<&KernelReport> = kernels.iter().filter(is_slower).collect();
    let width = slower.iter().map(|kernel| kernel.name().len()).max().unwrap_or(0);
    let mut lines = "Why nothing faster:".to_owned();
    lines.extend(slower.iter().map(|kernel| format!("\n  {:<width$}  {}", kernel.name(), kernel.reason)));
    match kernels.len() - slower.len() {
        0 => lines,
        fastest => {
            format!("{lines}\n  {fastest} of {} kernels: the fastest measured was chosen", kernels.len())
        }
    }
}

/// Two runs of the same net: without and with micro-batches.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Every kernel as measured in the net.
    pub kernels: Vec<Ratio>,
    /// The kernels' sum, passes, update and whole iteration.
    pub totals: Vec<Ratio>,
}

/// A time under both plans.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// What was timed.
    pub name: String,
    /// Undivided.
    pub undivided_ms: f64,
    /// With the chosen policy.
    pub chosen_ms: f64,
    /// How many times faster the latter is; `null` where nothing was measured.
    pub speedup: Option<f64>,
}

impl Ratio {
    /// What is called `name` took so long undivided and as chosen.
    pub fn new(name: impl Into<String>, [undivided_ms, chosen_ms]: [f64; 2]) -> Self {
        let speedup = (undivided_ms > 0.0 && chosen_ms > 0.0).then(|| undivided_ms / chosen_ms);
        Self { name: name.into(), undivided_ms, chosen_ms, speedup }
    }
}

impl Comparison {
    /// Compares the plans of two runs, undivided and as chosen, with `totals` of the runs.
    pub fn new([undivided, chosen]: [&PlanReport; 2], totals: Vec<Ratio>) -> Self {
        let ratio = |(a, b): (&KernelReport, &KernelReport)| {
            Ratio::new(a.name(), [a, b].map(|kernel| kernel.measured_ms.unwrap_or(0.0)))
        };
        Self { kernels: undivided.kernels.iter().zip(&chosen.kernels).map(ratio).collect(), totals }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = |ratios: &[Ratio]| {
            let mut table = Table::new(["", ">undivided ms", ">chosen ms", ">faster"]);
            for Ratio { name, undivided_ms, chosen_ms, speedup } in ratios {
                table.row([name.clone(), ms(*undivided_ms), ms(*chosen_ms), times(*speedup)]);
            }
            table
        };
        let (kernels, totals) = (table(&self.kernels), table(&self.totals));
        write!(f, "Comparison of the two, measured in the net:\n{kernels}\n\n{totals}")
    }
}
