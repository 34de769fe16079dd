//! The best of one kernel's configurations under a limit: options, the dynamic programme, WR, and what a plan says.

mod curve;
mod dp;
mod error;
mod explain;
mod options;
mod plan;
mod problem;
mod wr;

pub use curve::Curve;
pub use dp::{Sweep, desirable_set};
pub use error::PlanError;
pub use explain::{Explanation, Rejected};
pub use options::PlanOptions;
pub use plan::{DivisionReport, Plan, PlannedKernel};

pub(crate) use problem::{Candidates, Problem};
pub(crate) use wr::{Choice, choose};
