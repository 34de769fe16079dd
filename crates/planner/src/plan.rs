//! From measurements to a plan.

use good_lp::Solver;
use serde::{Deserialize, Serialize};

use crate::configuration::Configuration;
use crate::cost_table::CostTable;
use crate::error::PlanError;
use crate::explain::Explanation;
use crate::ilp::{Divide, IlpMethod, divide_ilp};
use crate::kernel::{ConvOp, Kernel};
use crate::knapsack::Division;
use crate::micro::{Measurement, MicroConfiguration};
use crate::policy::{BatchSizePolicy, WorkspacePolicy};
use crate::problem::Problem;
use crate::units::Bytes;
use crate::wd;
use crate::wr::{self, Choice};
use crate::ws;

/// Segments of the arena start at multiples of this many bytes: enough for every vector unit, and what CUDA's
/// own allocator guarantees, so that a kernel sees the alignment it was measured with.
pub const ARENA_ALIGNMENT: u64 = 256;

/// What a user wants of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// The micro-batch sizes that may be used.
    pub batch_size_policy: BatchSizePolicy,
    /// How kernels get workspace.
    pub workspace_policy: WorkspacePolicy,
    /// WR: workspace of each kernel. WD: total of all kernels. WS: the arena that all share.
    pub limit: Bytes,
    /// Only algorithms of at most this accuracy class (largest |error| relative to the largest |reference|).
    pub max_error: Option<f32>,
    /// Only algorithms that give bit-equal results every time.
    pub deterministic_only: bool,
}

impl Default for PlanOptions {
    /// The original's defaults: powerOfTwo, 64 MiB for each kernel.
    fn default() -> PlanOptions {
        PlanOptions {
            batch_size_policy: BatchSizePolicy::PowerOfTwo,
            workspace_policy: WorkspacePolicy::Wr,
            limit: Bytes::mib(64),
            max_error: None,
            deterministic_only: false,
        }
    }
}

impl PlanOptions {
    /// Whether an algorithm may be used at all.
    pub fn admits(&self, measurement: &Measurement) -> bool {
        self.max_error.is_none_or(|limit| measurement.max_error <= limit)
            && (measurement.deterministic || !self.deterministic_only)
    }

    /// What the options exclude, as the end of a sentence.
    pub(crate) fn restrictions(&self) -> String {
        let error = self.max_error.map(|limit| format!("a maximum error of {limit:e}"));
        let deterministic = self.deterministic_only.then(|| "deterministic algorithms only".to_owned());
        let wanted: Vec<String> = error.into_iter().chain(deterministic).collect();
        if wanted.is_empty() { String::new() } else { format!(" with {}", wanted.join(" and ")) }
    }
}

/// What one kernel got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// Its division into micro-batches.
    pub configuration: Configuration,
    /// Where its workspace begins in the arena, a multiple of [`ARENA_ALIGNMENT`].
    pub workspace_offset: Bytes,
    /// How much workspace it has: what its configuration needs.
    pub workspace: Bytes,
    /// How much it could have had: the limit, or under WD its segment and what the division leaves over.
    #[serde(default)]
    pub available: Bytes,
    /// What it would get without micro-batching under the same limit. Under WD, its part when the same total
    /// is divided among undivided kernels.
    pub undivided: Option<MicroConfiguration>,
    /// Why it did not get something faster.
    pub explanation: Explanation,
}

impl PlannedKernel {
    /// Planned time of all its micro-batches.
    pub fn time_ms(&self) -> f64 {
        self.configuration.time_ms()
    }

    /// How many times faster than undivided it is, if it can run undivided. Under WD a kernel may lose (below
    /// 1) what the others win.
    pub fn gain(&self) -> Option<f64> {
        self.undivided.as_ref().map(|undivided| undivided.time_ms / self.time_ms())
    }
}

/// How well the total of WD was divided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DivisionReport {
    /// Time that no division can beat: the linear relaxation.
    pub lower_bound_ms: f64,
    /// Time of the greedy division along the convex hulls, for comparison.
    pub greedy_ms: f64,
    /// Binary variables of the ILP: the sizes of all desirable sets together.
    pub binaries: usize,
}

/// The chosen configuration of every kernel and where its workspace lies. All times are sums of measured
/// times, so predictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What was asked for.
    pub options: PlanOptions,
    /// The kernels in the order given.
    pub kernels: Vec<PlannedKernel>,
    /// Sum of all kernels' times.
    pub time_ms: f64,
    /// The same without micro-batching, if every kernel can run undivided under the limit.
    pub undivided_time_ms: Option<f64>,
    /// Bytes of the arena: every kernel's own segment under WR and WD, one that all share under WS.
    pub workspace_total: Bytes,
    /// The largest workspace of any kernel.
    pub workspace_max: Bytes,
    /// Under WD, how well the total was divided.
    pub division: Option<DivisionReport>,
}

impl Plan {
    /// What the kernel of a layer got.
    pub fn kernel(&self, name: &str, op: ConvOp) -> Option<&PlannedKernel> {
        self.kernels.iter().find(|planned| planned.kernel.id.op == op && planned.kernel.name == name)
    }

    /// How many times faster than undivided all kernels together are, if there are any and each can run
    /// undivided.
    pub fn gain(&self) -> Option<f64> {
        self.undivided_time_ms
            .filter(|_| !self.kernels.is_empty())
            .map(|undivided_ms| undivided_ms / self.time_ms)
    }
}

/// Plans `kernels` on the measurements of `table`; WD by the exact method.
///
/// # Errors
/// When a kernel has an empty mini-batch, lacks a measurement that the batch-size policy needs, has
/// no admitted algorithm, or does not fit the limit; the last names the smallest limit that would do.
pub fn plan(kernels: &[Kernel], table: &CostTable, options: &PlanOptions) -> Result<Plan, PlanError> {
    plan_with(kernels, table, options, IlpMethod::Exact)
}

/// Plans as [`plan`] does, with a choice of method for WD.
///
/// # Errors
/// As [`plan`]; also when the ILP solver fails.
pub fn plan_with(
    kernels: &[Kernel],
    table: &CostTable,
    options: &PlanOptions,
    method: IlpMethod,
) -> Result<Plan, PlanError> {
    plan_by(kernels, table, options, &mut |groups, total| method.divide(groups, total))
}

/// Plans as [`plan`] does, with WD's ILP given to any of good_lp's solvers.
///
/// # Errors
/// As [`plan`]; also when the solver fails or returns anything but a proven optimum.
pub fn plan_with_solver<S: Solver>(
    kernels: &[Kernel],
    table: &CostTable,
    options: &PlanOptions,
    mut solver: S,
) -> Result<Plan, PlanError> {
    let create = &mut solver;
    plan_by(kernels, table, options, &mut |groups, total| {
        divide_ilp(groups, total, |problem| create.create_model(problem))
    })
}

/// Plans as [`plan`] does under WS, with a limit for each kernel, in order, in the place of the one of `options`: what is
/// free when the kernel runs. Where a kernel's workspace then lies is up to whoever knows that.
///
/// # Panics
/// If there are not as many limits as kernels.
///
/// # Errors
/// As [`plan`].
pub fn plan_within(
    kernels: &[Kernel],
    limits: &[Bytes],
    table: &CostTable,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    assert_eq!(kernels.len(), limits.len(), "one limit for each kernel");
    let largest = limits.iter().copied().max().unwrap_or_default();
    let options = PlanOptions { workspace_policy: WorkspacePolicy::Ws, limit: largest, ..options.clone() };
    let choices = wr::choose(&Problem::new(kernels, table, &options)?, |kernel| limits[kernel])?;
    Ok(assemble(kernels, &options, choices, None))
}

fn plan_by(
    kernels: &[Kernel],
    table: &CostTable,
    options: &PlanOptions,
    divide: Divide<'_>,
) -> Result<Plan, PlanError> {
    let problem = Problem::new(kernels, table, options)?;
    let (choices, division) = match options.workspace_policy {
        WorkspacePolicy::Wr => (wr::choose(&problem, |_| options.limit)?, None),
        WorkspacePolicy::Ws => (ws::choose(&problem, options.limit)?, None),
        WorkspacePolicy::Wd => {
            let (choices, division) = wd::choose(&problem, options.limit, divide)?;
            (choices, Some(division))
        }
    };
    Ok(assemble(kernels, options, choices, division.as_ref()))
}

/// Gives every kernel its place in the arena and adds everything up.
fn assemble(
    kernels: &[Kernel],
    options: &PlanOptions,
    choices: Vec<Choice>,
    division: Option<&Division>,
) -> Plan {
    let shared = options.workspace_policy == WorkspacePolicy::Ws;
    let mut end = Bytes::ZERO;
    let place = |(kernel, choice): (&Kernel, Choice)| {
        let Choice { configuration, undivided, available, explanation } = choice;
        let workspace = configuration.workspace();
        let workspace_offset = if shared { Bytes::ZERO } else { end };
        if !shared {
            end += workspace.align_up(ARENA_ALIGNMENT);
        }
        PlannedKernel {
            kernel: kernel.clone(),
            configuration,
            workspace_offset,
            workspace,
            available,
            undivided,
            explanation,
        }
    };
    let planned: Vec<PlannedKernel> = std::iter::zip(kernels, choices).map(place).collect();
    let workspace_max = planned.iter().map(|kernel| kernel.workspace).max().unwrap_or_default();
    Plan {
        options: options.clone(),
        time_ms: planned.iter().map(PlannedKernel::time_ms).sum(),
        undivided_time_ms: planned.iter().map(|kernel| Some(kernel.undivided.as_ref()?.time_ms)).sum(),
        workspace_total: if shared { workspace_max } else { end },
        workspace_max,
        division: division.map(Division::report),
        kernels: planned,
    }
}
