//! What is printed: plain data that serialises to JSON, each with its text form. What is known without running anything
//! is in the crate `figures`.

mod header;
mod memory;
mod time;
mod trace;
mod train;

pub use figures::{
    ActionSpan, BatchPoint, BatchReport, BudgetReport, Comparison, ExplainReport, PlanReport,
    ProfilingReport, Recorded, ScheduleReport, layer_table, six_digits,
};
pub use header::{DataReport, Header, NetReport, ShapesReport, shown};
pub use memory::{GpuMemory, MemoryEstimate};
pub use time::TimeRun;
pub use trace::trace;
pub use train::{StepLine, TestLines, TrainSummary, output_lines};
