//! Why a plan is as it is: what there was to choose from, and what more workspace would buy.

use super::{
    BudgetReport,
    number::ms,
    table::{Align, Table},
};
use planner::{
    Bytes, ConvOp, Cost, CostTable, Curve, DesirableSet, Fronts, Kernel, Plan, PlanError, PlannedKernel,
};
use serde::Serialize;
use std::fmt;

/// Most lines of a curve in text; JSON has all of them.
const MOST_LINES: usize = 16;

/// A plan explained.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainReport {
    /// Every kernel, in the order of the plan.
    pub kernels: Vec<KernelExplanation>,
    /// Planned time of all kernels as a function of the limit that the policy takes: where it falls, and to what.
    pub curve: Vec<Step>,
    /// Milliseconds that each MiB more could save at best, at the plan's limit.
    pub price_ms_per_mib: f64,
    /// The smallest limit with a plan.
    pub smallest_limit_bytes: Option<u64>,
    /// The kernel that sets it.
    pub smallest_limit_kernel: Option<String>,
    #[serde(skip)]
    limit: Bytes,
    #[serde(skip)]
    what: &'static str,
}

/// From this limit on, this time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Step {
    /// Workspace limit.
    pub limit_bytes: u64,
    /// Planned time.
    pub time_ms: f64,
}

/// One kernel explained.
#[derive(Clone, Debug, Serialize)]
pub struct KernelExplanation {
    /// The layer.
    pub layer: String,
    /// The operation.
    pub op: ConvOp,
    /// The geometry.
    pub shape: String,
    /// Samples.
    pub mini_batch: u32,
    /// The workspace that it could have had.
    pub available_bytes: u64,
    /// Its Pareto front.
    pub front: Vec<FrontPoint>,
    /// The micro-configuration with the least time per sample among those that need more workspace, if it is faster than
    /// what was chosen.
    pub fastest_rejected: Option<RejectedReport>,
    /// Milliseconds that each MiB more could save at best; `null` where nothing fits.
    pub price_ms_per_mib: f64,
}

/// A configuration of a Pareto front.
#[derive(Clone, Debug, Serialize)]
pub struct FrontPoint {
    /// Its workspace.
    pub workspace_bytes: u64,
    /// Its planned time.
    pub time_ms: f64,
    /// The configuration, as in `4x60 FFT_TILING + 16 IMPLICIT_GEMM`.
    pub configuration: String,
    /// Whether it is the one that the plan has.
    pub chosen: bool,
}

/// A micro-configuration that lacked workspace.
#[derive(Clone, Debug, Serialize)]
pub struct RejectedReport {
    /// Its algorithm.
    pub algorithm: String,
    /// Its samples.
    pub micro_batch: u32,
    /// Its time.
    pub time_ms: f64,
    /// Its workspace.
    pub workspace_bytes: u64,
    /// How much more that is than the kernel could have had.
    pub lacking_bytes: u64,
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
        let explained = std::iter::zip(&plan.kernels, fronts.iter());
        Ok(Self {
            kernels: explained.map(|(planned, (_, set))| kernel(plan, planned, set, table)).collect(),
            curve: steps(&fronts.curve(policy)),
            price_ms_per_mib: fronts.price_ms_per_mib(policy, limit),
            smallest_limit_bytes: smallest.map(|(limit, _)| limit.0),
            smallest_limit_kernel: smallest.map(|(_, kernel)| kernel.to_string()),
            limit,
            what: "limit",
        })
    }

    /// The same with the curve of a budget of device memory: there is no one limit.
    pub fn in_budget(self, budget: &BudgetReport) -> Self {
        Self {
            price_ms_per_mib: budget.price_ms_per_mib,
            curve: budget.curve.clone(),
            smallest_limit_bytes: Some(budget.smallest_budget_bytes),
            smallest_limit_kernel: None,
            limit: Bytes(budget.budget_bytes),
            what: "budget of device memory",
            ..self
        }
    }
}

/// The points of `curve`.
pub(crate) fn steps(curve: &Curve) -> Vec<Step> {
    let step = |point: &Cost| Step { limit_bytes: point.workspace.0, time_ms: point.time_ms };
    curve.points().iter().map(step).collect()
}

fn kernel(plan: &Plan, planned: &PlannedKernel, set: &DesirableSet, table: &CostTable) -> KernelExplanation {
    let point = |configuration: &planner::Configuration| FrontPoint {
        workspace_bytes: configuration.workspace().0,
        time_ms: configuration.time_ms(),
        configuration: configuration.to_string(),
        chosen: *configuration == planned.configuration,
    };
    let rejected = planned.fastest_rejected(table, &plan.options).map(|rejected| RejectedReport {
        algorithm: rejected.micro.algorithm.to_string(),
        micro_batch: rejected.micro.micro_batch,
        time_ms: rejected.micro.time_ms,
        workspace_bytes: rejected.micro.workspace.0,
        lacking_bytes: rejected.lacking.0,
    });
    KernelExplanation {
        layer: planned.kernel.name.clone(),
        op: planned.kernel.id.op,
        shape: planned.kernel.id.shape.to_string(),
        mini_batch: planned.kernel.mini_batch,
        available_bytes: planned.available.0,
        front: set.iter().map(point).collect(),
        fastest_rejected: rejected,
        price_ms_per_mib: set.curve().price_ms_per_mib(planned.available),
    }
}

impl fmt::Display for KernelExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, op, shape, mini_batch, .. } = self;
        let available = Bytes(self.available_bytes);
        writeln!(f, "{layer} {op}: {shape}, mini-batch {mini_batch}, up to {available} of workspace")?;
        let mut table = Table::new([
            ("", Align::Left),
            ("workspace", Align::Right),
            ("ms", Align::Right),
            ("configuration", Align::Left),
        ]);
        for point in &self.front {
            let mark = if point.chosen { "chosen" } else { "" };
            let workspace = Bytes(point.workspace_bytes).to_string();
            table.row([mark.to_owned(), workspace, ms(point.time_ms), point.configuration.clone()]);
        }
        writeln!(f, "{table}")?;
        match &self.fastest_rejected {
            Some(rejected) => writeln!(
                f,
                "  rejected: {} at {} takes {} ms ({} a sample) and lacks {}",
                rejected.algorithm,
                rejected.micro_batch,
                ms(rejected.time_ms),
                ms(rejected.time_ms / f64::from(rejected.micro_batch)),
                Bytes(rejected.lacking_bytes)
            )?,
            None => writeln!(f, "  rejected: nothing that is faster")?,
        }
        write!(f, "  {}", price(self.price_ms_per_mib))
    }
}

impl fmt::Display for ExplainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "What every kernel had to choose from:")?;
        self.kernels.iter().try_for_each(|kernel| writeln!(f, "{kernel}\n"))?;
        let what = self.what;
        writeln!(f, "Planned time of all kernels under each {what}, where it changes:")?;
        let mut table = Table::new([(what, Align::Right), ("ms", Align::Right), ("", Align::Left)]);
        for step in shown(&self.curve, self.limit) {
            let Step { limit_bytes, time_ms } = self.curve[step];
            let next = self.curve.get(step + 1).is_none_or(|next| next.limit_bytes > self.limit.0);
            let here = if limit_bytes <= self.limit.0 && next {
                format!("this plan's {what} is here")
            } else {
                String::new()
            };
            table.row([Bytes(limit_bytes).to_string(), ms(time_ms), here]);
        }
        writeln!(f, "{table}")?;
        if let Some(smallest) = self.smallest_limit_bytes {
            let kernel = match &self.smallest_limit_kernel {
                Some(_) if smallest == 0 => Some(": no kernel needs workspace".to_owned()),
                kernel => kernel.as_ref().map(|kernel| format!(", set by {kernel}")),
            };
            let smallest = Bytes(smallest).exact();
            writeln!(f, "  the smallest feasible {what} is {smallest}{}", kernel.unwrap_or_default())?;
        }
        write!(f, "  {}", price(self.price_ms_per_mib))
    }
}

/// Which steps of a curve are shown: the first, the last, the one that `limit` reaches, and others evenly between them.
fn shown(curve: &[Step], limit: Bytes) -> Vec<usize> {
    let Some(last) = curve.len().checked_sub(1) else { return Vec::new() };
    let here = curve.partition_point(|step| step.limit_bytes <= limit.0).saturating_sub(1);
    let lines = MOST_LINES.min(curve.len());
    let mut shown: Vec<usize> =
        (0..lines).map(|line| line * last / (lines - 1).max(1)).chain([here]).collect();
    shown.sort_unstable();
    shown.dedup();
    shown
}

/// What more workspace would save, with three digits that count.
fn price(ms_per_mib: f64) -> String {
    match ms_per_mib {
        price if price <= 0.0 => "more workspace would save nothing".to_owned(),
        price if price < 0.001 => format!("one more MiB would save at most {price:.1e} ms"),
        price => format!("one more MiB would save at most {price:.3} ms"),
    }
}
