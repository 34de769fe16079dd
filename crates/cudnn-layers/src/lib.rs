//! The operations of cuDNN on every backend: the algorithms of a convolution, how to run and to measure them, and the
//! other layers' arithmetic.
//!
//! One folder per operation: `mod.rs` is the contract (formula, shapes, errors) and the one place that matches on the
//! device; `cpu.rs` is the CPU's code; `tests.rs` holds bodies that every device must pass. This crate knows no graph, no
//! parameters and no policy: it is told which algorithm to run on which samples.

pub mod conv;
