//! What is printed: plain data that serialises to JSON, each with its text form. What is known without running anything
//! is in the crate `figures`.

mod header;
mod time;
mod train;

pub use figures::{
    BudgetReport, Comparison, EstimateReport, ExplainReport, GpuMemory, MemoryEstimate, PlanReport,
    ProfilingReport, Recorded, layer_table, six_digits,
};
pub use header::{DataReport, Header, NetReport, ShapesReport, measured_on, shown};
pub use time::TimeRun;
pub use train::{StepLine, TestLines, TrainSummary, output_lines};
