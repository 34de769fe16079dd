//! Hostile input for every surface of the library: whatever it is, it ends in a value or in a sentence, within 10
//! seconds and within the memory that was foretold. CONTRIBUTING.md says how to run this for longer.

mod convolution;
#[path = "../../crates/trainer/tests/counting/mod.rs"]
mod counting;
mod data;
mod harness;
mod measurements;
mod mutate;
mod nets;
mod options;
mod shapes;
mod snapshots;
mod solvers;
