//! Nets, schedules, memory plans, layers, solvers, data and snapshots.
//!
//! ```text
//! prototxt ─► spec ─► net::Graph ─► net::Schedule ─► net::Layout ─► Net::forward, Net::backward
//!                        │                ▲
//!                        └─► planning ────┘   (kernels are measured, planned, installed; workspaces enter the layout)
//! ```
//!
//! [`solver`] trains a net, [`time`] times it; both first plan everything, say what memory it takes, and only then
//! allocate it: one arena, and nothing after that.

pub mod data;
pub mod database;
mod digest;
pub mod error;
pub mod files;
pub mod fill;
#[cfg(test)]
mod gradient_check;
pub mod host;
pub mod layers;
pub mod net;
pub mod planning;
pub mod prototxt;
pub mod run;
pub mod snapshot;
pub mod solver;
pub mod spec;
pub mod stop;
#[cfg(test)]
mod testing;
pub mod time;

pub use error::NetError;
pub use net::Net;
pub use planning::PlanOrigin;
pub use run::{Run, Running};
pub use solver::{Solver, TrainError, Training};
pub use stop::Stop;
