//! The one folder that calls cuDNN, in three levels: calls whose status becomes an error (`api`), descriptors that live and
//! die as Rust values do (`descriptor`), and a handle, owned or borrowed, with its convolutions (`handle`).
//!
//! cuDNN is reached through its legacy API (one call per operation and algorithm), for only there can a caller choose
//! among all algorithms. `alpha` and `beta` do not leave this folder: above it there is
//! [`Accumulate`](tensor::Accumulate).

#[cfg(feature = "cuda")]
mod api;
#[cfg(feature = "cuda")]
mod descriptor;
mod error;
#[cfg(feature = "cuda")]
mod handle;

#[cfg(not(feature = "cuda"))]
pub use crate::without_cuda::{Cudnn, versions};
pub use error::{CudnnError, CudnnVersion};
#[cfg(feature = "cuda")]
pub use handle::{Cudnn, versions};
#[cfg(feature = "cuda")]
pub(crate) use {descriptor::ConvDescriptors, handle::LegacyAlgorithm};
