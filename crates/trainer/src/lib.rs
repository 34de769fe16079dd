//! Nets, schedules, memory plans, layers, solvers, data and snapshots.

pub mod prototxt;
pub mod spec;
