//! Nets, schedules, memory plans, layers, solvers, data and snapshots.

pub mod data;
pub mod prototxt;
pub mod snapshot;
pub mod spec;
