//! Placeholder until the planner lands.
pub mod kernel;
pub use kernel::ConvOp;
