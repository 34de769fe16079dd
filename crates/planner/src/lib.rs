//! Chooses how convolution kernels are divided into micro-batches, and with which algorithms, under a
//! workspace limit.
//!
//! The crate is pure: no device, threads, clocks or files. Measurements come in as a [`CostTable`], filled by
//! whatever implements [`Profiler`]; a [`Plan`] goes out. Both are plain data.
//!
//! ```text
//! kernels ──► CostTable::profile ──► CostTable ──► plan ──► Plan
//!                  ▲                                ▲
//!               Profiler                       PlanOptions
//! ```
//!
//! Words, as in the µ-cuDNN paper (arXiv 1804.04806): a *kernel* is one [`ConvOp`] of one convolution layer;
//! a *micro-configuration* is an algorithm with a micro-batch size, its time and its workspace; a
//! [`Configuration`] is a list of them that covers the mini-batch (time is the sum, workspace the maximum); a
//! [`DesirableSet`] is the Pareto front of configurations in (time, workspace).
//!
//! # Example
//! ```
//! use planner::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! /// One fast algorithm that needs 1 MiB a sample, and one slow one that needs nothing.
//! struct Affine;
//! impl Profiler for Affine {
//!     fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
//!         let micro_batch = request.micro_batch;
//!         let samples = f64::from(micro_batch);
//!         let micro = |algorithm, time_ms, workspace| Measurement {
//!             algorithm: Algorithm::new(algorithm),
//!             micro_batch,
//!             time_ms,
//!             shared_ms: 0.0,
//!             workspace,
//!             max_error: 1e-6,
//!             deterministic: true,
//!         };
//!         let fft_workspace = Bytes::mib(u64::from(micro_batch));
//!         Ok(vec![micro("FFT", 0.1 + 0.01 * samples, fft_workspace), micro("GEMM", 0.05 * samples, Bytes(0))])
//!     }
//! }
//!
//! let shape = ConvShape { c: 64, h: 27, w: 27, k: 192, r: 5, s: 5, pad: [2, 2], ..ConvShape::default() };
//! let id = KernelId { op: ConvOp::Forward, shape, dtype: Dtype::F32, math: Math::Fp32, layout: Layout::Nchw
//! }; let kernels = [Kernel { name: "conv2".into(), id, mini_batch: 256 }];
//!
//! let mut table = CostTable::new(DeviceHeader::default());
//! table.profile(&kernels, BatchSizePolicy::PowerOfTwo, &mut Affine, |_| ())?;
//! let plan = plan(&kernels, &table, &PlanOptions { limit: "64MiB".parse()?, ..PlanOptions::default() })?;
//!
//! assert_eq!(plan.kernels[0].configuration.to_string(), "4x64 FFT");
//! assert_eq!(plan.kernels[0].explanation.to_string(), "FFT at 256 is 1.11x faster but lacks 192 MiB");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod adaptive;
mod configuration;
mod cost_table;
mod coverage;
mod curve;
mod desirable;
mod dp;
mod error;
mod estimate;
mod explain;
mod fronts;
mod ilp;
mod json_lines;
mod kernel;
mod knapsack;
mod measuring;
mod micro;
mod noise;
mod plan;
mod policy;
mod problem;
mod profiler;
mod reduction;
mod relaxation;
mod relevant;
mod units;
mod wd;
mod wr;
mod ws;

pub use configuration::{Configuration, Run};
pub use cost_table::{CostTable, DeviceHeader};
pub use coverage::Coverage;
pub use curve::{Curve, CurvePoint};
pub use desirable::DesirableSet;
pub use dp::{Sweep, desirable_set};
pub use error::{
    CostTableError, InvalidMeasurement, MergeError, ParseBytesError, ParsePolicyError, PlanError,
    ProfileError,
};
pub use explain::{Explanation, Rejected};
pub use fronts::Fronts;
pub use ilp::{DivideError, IlpMethod, divide_ilp};
pub use kernel::{ConvOp, ConvShape, Dtype, Kernel, KernelId, Layout, Math};
pub use knapsack::{Alternative, Division, divide_exact};
pub use measuring::Progress;
pub use micro::{Algorithm, Measurement, MicroConfiguration};
pub use noise::Noise;
pub use plan::{
    ARENA_ALIGNMENT, DivisionReport, Plan, PlanOptions, PlannedKernel, plan, plan_with, plan_with_solver,
    plan_within,
};
pub use policy::{BatchSizePolicy, WorkspacePolicy};
pub use profiler::{Candidate, Done, Profiler, ProfilerError, Request, RequestError};
pub use units::Bytes;
