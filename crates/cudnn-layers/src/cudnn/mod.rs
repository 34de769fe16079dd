//! The one folder that calls cuDNN, in three levels: calls whose status becomes an error (`api`), descriptors that live
//! and die as Rust values do (`backend`), and the handle of a device and its convolutions (`handle`, `graph`).
//!
//! cuDNN is reached through operation graphs, whose engines are its algorithms, those of its older interface included.
//! `alpha` and `beta` do not leave this folder: above it there is [`Accumulate`](tensor::Accumulate).

mod api;
mod backend;
mod engine;
mod graph;
mod handle;

pub(crate) use engine::{Engine, EngineFacts};
pub(crate) use graph::{ConvGraph, Convolution, EngineConfig, FALLBACK, LIKELY};
pub use handle::versions;
pub(crate) use handle::{SMALL_WORKSPACE, with};
use tensor::cuda::CudaError;

type Result<T, E = CudaError> = std::result::Result<T, E>;
