//! Nets, schedules, memory plans, layers, solvers, data and snapshots.
//!
//! ```text
//! prototxt ─► spec ─► Net ─► planning ─► NetRun (schedule, places: crate memory) ─► Execution::iterate
//!                                          │
//!                                          └─► what it will take, before anything is allocated
//! ```
//!
//! One loop over one schedule: [`time`] looks on while it runs, [`solver`] trains with it, [`Execution::test`] tests.
//! All memory is one arena, and nothing is allocated after it but what a processor packs for products of matrices.

pub mod data;
pub mod error;
pub mod export;
pub mod fill;
#[cfg(test)]
mod gradient_check;
pub mod group;
pub mod host;
pub mod layers;
pub mod net;
pub mod own_images;
pub mod planning;
pub mod protobuf;
pub mod prototxt;
pub mod run;
pub mod shapes;
pub mod snapshot;
pub mod solver;
pub mod spec;
pub mod stop;
#[cfg(test)]
mod testing;
pub mod time;

pub use error::NetError;
use error::Result;
pub use group::Group;
pub use net::Net;
pub use planning::PlanOrigin;
pub use run::{Execution, NetRun};
pub use solver::{Solver, Training};
pub use stop::Stop;
