//! The best of one kernel's configurations under a limit: options, the dynamic programme, WR, and what a plan says.

mod curve;
mod dp;
mod error;
mod explain;
mod fronts;
mod options;
mod plan;
mod wr;

pub use curve::Curve;
pub use dp::desirable_set;
pub use error::PlanError;
pub use explain::Explanation;
pub use fronts::Fronts;
pub use options::PlanOptions;
pub use plan::{DivisionReport, Plan, PlannedKernel};

pub(crate) use fronts::{candidates, first_largest};
pub(crate) use wr::choose;
