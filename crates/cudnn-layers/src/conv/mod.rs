//! Convolution: several algorithms for each of its three operations.
//!
//! | operation | `a` | `b` | `out` |
//! | --- | --- | --- | --- |
//! | [`ConvOp::Forward`] | `x: n, c, h, w` | filter `w: k, c/groups, r, s` | `y: n, k, p, q` |
//! | [`ConvOp::BackwardData`] | `dy: n, k, p, q` | filter `w` | `dx: n, c, h, w` |
//! | [`ConvOp::BackwardFilter`] | `x` | `dy` | `dw: k, c/groups, r, s` |
//!
//! with `y[n][k][p][q] = sum over c, r, s of x[n][c][p*stride + r*dilation - pad][q*stride + s*dilation - pad] *
//! w[k][c][r][s]`. On a GPU feature maps (`x`, `y` and their gradients) may be in BF16 or NHWC. The filter `w` is of
//! their type and order, its gradient `dw` of their order and always in single precision. Algorithms differ in speed,
//! in the workspace they need and in rounding error; a [`Convolver`] states all three. The processor's are in `cpu`,
//! those of cuDNN in `cuda`; [`run`] divides a mini-batch among them, [`profile`] times them, and [`verify`] compares
//! them with the definition.

mod backend;
mod convolver;
pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
mod error;
pub(crate) mod operands;
pub mod parallel;
pub mod profile;
pub mod run;
mod shape;
#[cfg(test)]
mod tests;
pub mod verify;

pub use backend::{candidates, find};
pub use convolver::{Convolver, Facts};
pub use error::ConvError;
pub(crate) use error::Result;
pub use operands::operand_lens;
pub use parallel::ParallelProfiler;
pub use planner::ConvOp;
pub use profile::{ProfileOptions, profiler};
pub use run::Runner;
pub use shape::{format, geometry, kernel_id};

/// Names the CPU kernels of this build: other sources, another compiler or other optimisation have another name. What
/// was measured of one must not be taken for another's.
pub const CPU_KERNELS: &str = env!("MICROBATCH_CPU_KERNELS");
