//! What is printed: plain data that serialises, each with its text form. What is known without a run is in `figures`.

mod header;
mod time;
mod train;

pub(crate) use header::{DataReport, Header, NetReport, ShapesReport, Subject, shown};
pub(crate) use time::TimeRun;
pub(crate) use train::{StepLine, TestLines, TrainReport, TrainSummary, confusion_table, output_lines};
