//! Why a plan is as it is: what there was to choose from, and what more workspace would buy.

use crate::number::{ms, price};
use crate::{budget::BudgetReport, table::Table};
use planner::{
    Bytes, CostTable, Curve, DesirableSet, Explanation, Fronts, Kernel, Plan, PlanError, PlannedKernel,
    WorkspacePolicy,
};
use serde::Serialize;
use std::{collections::BTreeSet, fmt};

/// Most lines of a curve in text; JSON has all of them.
const MOST_LINES: usize = 16;

/// What WD divides.
const TOTAL: &str = "total";

/// A plan explained.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainReport {
    /// Every kernel, in the order of the plan.
    pub kernels: Vec<KernelExplanation>,
    /// What `limit` and the curve are of: the `limit` of each kernel or of the arena, the `total` of WD, or a `budget of
    /// device memory`.
    pub of: &'static str,
    /// The plan's own.
    pub limit: Bytes,
    /// Planned time of all kernels as a function of the limit: where it falls, and to what; of a total only the points
    /// below which no line between two others passes.
    pub curve: Curve,
    /// Milliseconds that each MiB more could save at best, at the plan's limit; of a total what it saves on average up to
    /// where the relaxation changes. `null` where nothing fits.
    pub price_ms_per_mib: f64,
    /// The smallest limit with a plan.
    pub smallest_limit: Option<Bytes>,
    /// The kernel that sets it.
    pub smallest_limit_kernel: Option<String>,
}

/// One kernel explained.
#[derive(Clone, Debug, Serialize)]
pub struct KernelExplanation {
    /// The kernel.
    pub kernel: Kernel,
    /// The workspace that it could have had.
    pub available: Bytes,
    /// Its Pareto front.
    pub front: DesirableSet,
    /// Time and workspace of each point of the front.
    pub costs: Curve,
    /// Which of them the plan has.
    pub chosen: Option<usize>,
    /// Why it did not get the fastest: how many bytes that lacks.
    pub explanation: Explanation,
    /// Milliseconds that each MiB more could save at best; `null` where nothing fits.
    pub price_ms_per_mib: f64,
}

impl ExplainReport {
    /// Explains `plan`, which was made from `table`.
    ///
    /// # Errors
    /// None, if the plan is of that table.
    pub fn new(plan: &Plan, table: &CostTable) -> Result<Self, PlanError> {
        let kernels: Vec<Kernel> = plan.kernels.iter().map(|planned| planned.kernel.clone()).collect();
        let fronts = Fronts::new(&kernels, table, &plan.options)?;
        let (policy, limit) = (plan.options.workspace_policy, plan.options.limit);
        let smallest = fronts.smallest_limit(policy);
        let explained = |(planned, (_, front)): (&PlannedKernel, (_, &DesirableSet))| KernelExplanation {
            kernel: planned.kernel.clone(),
            available: planned.available,
            chosen: front.iter().position(|configuration| *configuration == planned.configuration),
            front: front.clone(),
            explanation: planned.explanation.clone(),
            price_ms_per_mib: front.curve().price_ms_per_mib(planned.available),
            costs: front.curve(),
        };
        Ok(Self {
            kernels: plan.kernels.iter().zip(fronts.iter()).map(explained).collect(),
            of: if policy == WorkspacePolicy::Wd { TOTAL } else { "limit" },
            limit,
            curve: fronts.curve(policy),
            price_ms_per_mib: fronts.price_ms_per_mib(policy, limit),
            smallest_limit: smallest.map(|(limit, _)| limit),
            smallest_limit_kernel: smallest.map(|(_, kernel)| kernel.to_string()),
        })
    }

    /// The same with the curve of a budget of device memory: there is no one limit.
    #[must_use]
    pub fn in_budget(self, budget: &BudgetReport) -> Self {
        Self {
            of: "budget of device memory",
            limit: budget.budget,
            curve: budget.curve.clone(),
            price_ms_per_mib: budget.price_ms_per_mib,
            smallest_limit: Some(budget.smallest_budget),
            smallest_limit_kernel: None,
            ..self
        }
    }

    /// The same of kernels alone: what each may have follows from a schedule, and not from one limit.
    #[must_use]
    pub fn in_schedule(self) -> Self {
        Self { curve: Curve::default(), smallest_limit: None, smallest_limit_kernel: None, ..self }
    }
}

/// The configurations of a Pareto front, one a line, with a mark at the `chosen` one.
pub fn front_table(front: &DesirableSet, chosen: Option<usize>) -> Table {
    let mut table = Table::new(["", ">workspace", ">ms", "configuration"]);
    for (place, configuration) in front.iter().enumerate() {
        let mark = if Some(place) == chosen { "chosen" } else { "" };
        let (workspace, time_ms) = (configuration.workspace().to_string(), ms(configuration.time_ms()));
        table.row([mark.to_owned(), workspace, time_ms, configuration.to_string()]);
    }
    table
}

/// Where the time of `curve` falls, over the limit that is called `of`: some sixteen lines, with a mark at `limit`.
pub fn curve_table(curve: &Curve, limit: Bytes, of: &str) -> Table {
    let mut table = Table::new([format!(">{of}"), ">ms".to_owned(), String::new()]);
    let points = curve.points();
    let Some(last) = points.len().checked_sub(1) else { return table };
    let reached = points.partition_point(|point| point.workspace <= limit).checked_sub(1);
    let lines = MOST_LINES.min(points.len());
    let evenly = (0..lines).map(|line| line * last / (lines - 1).max(1));
    for place in evenly.chain(reached).collect::<BTreeSet<usize>>() {
        let here = if Some(place) == reached { format!("this plan's {of} is here") } else { String::new() };
        table.row([points[place].workspace.to_string(), ms(points[place].time_ms), here]);
    }
    table
}

impl fmt::Display for KernelExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kernel, available) = (&self.kernel, self.available.exact());
        let (shape, mini_batch) = (kernel.id.shape, kernel.mini_batch);
        writeln!(f, "{kernel}: {shape}, mini-batch {mini_batch}, up to {available} of workspace")?;
        writeln!(f, "{}", front_table(&self.front, self.chosen))?;
        writeln!(f, "  {}", self.explanation)?;
        write!(f, "  {}", price(self.price_ms_per_mib, false))
    }
}

impl fmt::Display for ExplainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "What every kernel had to choose from:")?;
        self.kernels.iter().try_for_each(|kernel| writeln!(f, "{kernel}\n"))?;
        if self.curve.points().is_empty() {
            return Ok(());
        }
        let of = self.of;
        // Of divisions the curve has the best for their memory; between them are others.
        let places = if of == TOTAL { "at some of the places where" } else { "where" };
        writeln!(f, "Planned time of all kernels under each {of}, {places} it changes:")?;
        writeln!(f, "{}", curve_table(&self.curve, self.limit, of))?;
        if let Some(smallest) = self.smallest_limit {
            let kernel = match &self.smallest_limit_kernel {
                Some(_) if smallest == Bytes::ZERO => ": no kernel needs workspace".to_owned(),
                Some(kernel) => format!(", set by {kernel}"),
                None => String::new(),
            };
            writeln!(f, "  the smallest feasible {of} is {}{kernel}", smallest.exact())?;
        }
        write!(f, "  {}", price(self.price_ms_per_mib, of == TOTAL))
    }
}
