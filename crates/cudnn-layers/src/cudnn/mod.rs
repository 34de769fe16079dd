//! The one folder that calls cuDNN, in three levels: calls whose status becomes an error (`api`), descriptors that live and
//! die as Rust values do (`descriptor`), and a handle, owned or borrowed, with its convolutions (`handle`).
//!
//! cuDNN is reached through its legacy API (one call per operation and algorithm), for only there can a caller choose
//! among all algorithms. `alpha` and `beta` do not leave this folder: above it there is
//! [`Accumulate`](tensor::Accumulate).

mod api;
mod descriptor;
mod error;
mod handle;

pub(crate) use descriptor::ConvDescriptors;
pub use error::{CudnnError, CudnnVersion};
pub(crate) use handle::LegacyAlgorithm;
pub use handle::{Cudnn, versions};
