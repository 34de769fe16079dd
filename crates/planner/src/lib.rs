//! Chooses how convolution kernels are divided into micro-batches, and with which algorithms, under a workspace limit.
//!
//! The crate is pure: no device, threads, clocks or files. Measurements come in as a [`CostTable`], filled by whatever
//! implements [`Profiler`]; a [`Plan`] goes out. Both are plain data.
//!
//! ```text
//! kernels ──► profile ──► CostTable ──► plan ──► Plan
//!                ▲                       ▲
//!             Profiler              PlanOptions
//! ```
//!
//! Five rooms, each of which uses only those before it: `model` (sizes, kernels, measurements, configurations), `table`
//! (the measurements of a device), `choose` (one kernel's best configuration under a limit: the dynamic programme, WR),
//! `divide` (all kernels together: WD's division of a total, curves) and `measure` (what is measured).
//!
//! Words, as in the µ-cuDNN paper (arXiv 1804.04806): a *kernel* is one [`ConvOp`] of one convolution layer; a
//! *micro-configuration* is an algorithm with a micro-batch size, its time and its workspace; a [`Configuration`] is a
//! list of them that covers the mini-batch (time is the sum, workspace the maximum); a [`DesirableSet`] is the Pareto
//! front of configurations in (time, workspace).
//!
//! # Example
//! ```
//! use planner::*;
//!
//! /// One fast algorithm that needs 1 MiB a sample, and one slow one that needs nothing.
//! struct Affine;
//! impl Profiler for Affine {
//!     fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
//!         let micro_batch = request.micro_batch;
//!         let samples = f64::from(micro_batch);
//!         let micro = |algorithm, time_ms, workspace| Measurement {
//!             algorithm: Algorithm::from(algorithm),
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
//! let (dtype, math, layout) = (Dtype::F32, Math::Fp32, Layout::Nchw);
//! let id = KernelId { op: ConvOp::Forward, shape, dtype, math, layout };
//! let kernels = [Kernel { name: "conv2".into(), id, mini_batch: 256 }];
//!
//! let options = PlanOptions { limit: "64MiB".parse()?, ..PlanOptions::default() };
//! let mut table = CostTable::new(DeviceHeader::default());
//! profile(&mut table, &kernels, &options, &mut Affine, |_| ())?;
//! let plan = plan(&kernels, &table, &options)?;
//!
//! assert_eq!(plan.kernels[0].configuration.to_string(), "4x64 FFT");
//! assert_eq!(plan.kernels[0].explanation.to_string(), "FFT at 256 is 1.11x faster but lacks 192 MiB");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod choose;
mod divide;
mod measure;
mod model;
mod table;

pub use choose::*;
pub use divide::*;
pub use measure::*;
pub use model::*;
pub use table::*;
