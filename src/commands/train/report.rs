//! What `train` reports.

use crate::report::{Header, StepLine, TestLines, TrainSummary};
use figures::{BudgetReport, MemoryEstimate, PlanReport, ScheduleReport};
use serde::Serialize;
use trainer::snapshot::CopiedWeights;

#[derive(Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) header: Header,
    /// With `--weights`, what was taken of them.
    pub(super) weights: Option<CopiedWeights>,
    pub(super) memory: MemoryEstimate,
    pub(super) plan: PlanReport,
    pub(super) budget: Option<BudgetReport>,
    pub(super) schedule: Option<ScheduleReport>,
    pub(super) steps: Vec<StepLine>,
    pub(super) tests: Vec<TestLines>,
    /// At its end.
    pub(super) summary: Option<TrainSummary>,
}
