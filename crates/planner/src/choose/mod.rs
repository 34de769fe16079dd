//! The best of one kernel's configurations under a limit: options, the dynamic programme, WR, and what a plan says.

mod curve;
mod dp;
mod fronts;
mod options;
mod plan;
mod wr;

pub use curve::Curve;
pub use dp::desirable_set;
pub use fronts::Fronts;
pub use options::{PlanError, PlanOptions};
pub use plan::{DivisionReport, Explanation, Plan, PlannedKernel};

pub(crate) use fronts::{candidates, first_largest};
pub(crate) use wr::choose;
