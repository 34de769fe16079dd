//! The one folder that calls cuDNN, in three levels: calls whose status becomes an error (`api`), descriptors that live
//! and die as Rust values do (`backend`), and the handle of a device and its convolutions (`handle`, `graph`).
//!
//! cuDNN is reached through operation graphs, whose engines are its algorithms, those of its older interface included.
//! `alpha` and `beta` do not leave this folder: above it there is [`Accumulate`](tensor::Accumulate).

#[cfg(feature = "cuda")]
mod api;
#[cfg(feature = "cuda")]
mod backend;
#[cfg(feature = "cuda")]
mod engine;
mod error;
#[cfg(feature = "cuda")]
mod graph;
#[cfg(feature = "cuda")]
mod handle;

#[cfg(not(feature = "cuda"))]
pub use crate::without_cuda::versions;
#[cfg(feature = "cuda")]
pub(crate) use engine::{Engine, EngineFacts};
pub use error::CudnnError;
#[cfg(feature = "cuda")]
pub(crate) use graph::{ConvGraph, Convolution, EngineConfig, ExecutionPlan, FALLBACK, LIKELY};
#[cfg(feature = "cuda")]
pub use handle::versions;
#[cfg(feature = "cuda")]
pub(crate) use handle::{SMALL_WORKSPACE, with};
