//! What is printed: plain data that serialises to JSON, each with its text form.

mod budget;
mod compare;
mod explain;
mod header;
mod kernels;
mod layers;
mod memory;
mod number;
mod planning;
mod profiling;
mod table;
mod time;
mod train;

pub use budget::BudgetReport;
pub use compare::{Comparison, Ratio};
pub(crate) use explain::steps;
pub use explain::{ExplainReport, FrontPoint, KernelExplanation, RejectedReport, Step};
pub use header::{DataReport, Header, NetReport, RecordedReport, ShapesReport};
pub use kernels::KernelReport;
pub use layers::{LayerMemory, layer_memory, layer_table};
pub use memory::MemoryEstimate;
pub use number::six_digits;
pub use planning::PlanReport;
pub use profiling::ProfilingReport;
pub use table::{Align, Table};
pub use time::{LayerTiming, TimeRun};
pub use train::{OutputReport, StepLine, TestLines, TrainSummary};
