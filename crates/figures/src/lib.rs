//! What the planner decides, as tables and sentences.
//!
//! Pure as the planner: its values go in, reports come out; no device, no clock, no file. It builds for wasm32, so that
//! a page shows the words and numbers of the command. A report is plain data: it serialises, and prints as text.
//!
//! ```text
//! Plan ───────────────► PlanReport ──────┬─► Comparison
//! Plan, CostTable ────► ExplainReport    ├─► text (Display, Table)
//! Plan, Room ─────────► BudgetReport     └─► JSON (serde)
//! Coverage, Noise ────► ProfilingReport
//! MemoryReport ───────► MemoryEstimate, layer_table
//! MemoryPlan ─────────► ScheduleReport
//! DeviceHeader ───────► Recorded
//! Study (net, CostTable) ► Figure ──────► SVG, PNG, CSV (`draw`)
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod budget;
pub mod draw;
mod estimate;
mod explain;
mod learning;
mod number;
mod plan;
mod profiling;
mod scaling;
mod schedule;
pub mod study;
mod table;

pub use budget::{BatchPoint, BatchReport, BudgetReport};
pub use estimate::{GpuMemory, MemoryEstimate, layer_table};
pub use explain::{ExplainReport, KernelExplanation, curve_table, front_table};
pub use learning::{LearningCurve, learning_curves};
pub use number::{counted, deviation, ms, price, six_digits, times};
pub use plan::{Comparison, KernelReport, PlanReport, Ratio, kernel_table};
pub use profiling::{EstimateReport, ProfilingReport, Recorded};
pub use scaling::{ScalingPoint, ScalingReport, scaling_figure};
pub use schedule::{ActionSpan, LayerFate, ScheduleReport};
pub use table::Table;
