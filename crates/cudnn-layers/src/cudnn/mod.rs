//! The one folder that calls cuDNN, in three levels: calls whose status becomes an error (`api`), descriptors that live
//! and die as Rust values do (`descriptor`, `backend`), and a handle with its convolutions (`handle`, `graph`).
//!
//! cuDNN is reached in two ways. Its legacy API (one call per operation and algorithm) has algorithms that transform
//! tiles and frequencies. Operation graphs have its newest engines, which are fastest where feature maps are in BF16 or
//! NHWC. `alpha` and `beta` do not leave this folder: above it there is [`Accumulate`](tensor::Accumulate).

#[cfg(feature = "cuda")]
mod api;
#[cfg(feature = "cuda")]
mod backend;
#[cfg(feature = "cuda")]
mod descriptor;
#[cfg(feature = "cuda")]
mod engine;
mod error;
#[cfg(feature = "cuda")]
mod graph;
#[cfg(feature = "cuda")]
mod handle;

#[cfg(not(feature = "cuda"))]
pub use crate::without_cuda::{Cudnn, versions};
pub use error::{CudnnError, CudnnVersion};
#[cfg(feature = "cuda")]
pub use handle::{Cudnn, versions};
#[cfg(feature = "cuda")]
pub(crate) use {
    descriptor::ConvDescriptors,
    engine::{Engine, EngineFacts},
    graph::{ConvGraph, Convolution, EngineConfig, ExecutionPlan, FALLBACK, LIKELY},
    handle::{LegacyAlgorithm, SMALL_WORKSPACE},
};
