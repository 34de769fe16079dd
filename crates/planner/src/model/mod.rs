//! What is planned and what a plan is made of: sizes, kernels, measurements, configurations and their fronts.

mod configuration;
mod kernel;
mod measurement;
mod names;
mod policy;
mod units;

pub use configuration::{Configuration, Cost, DesirableSet, Run};
pub use kernel::{ConvOp, ConvShape, Dtype, Kernel, KernelId, Layout, Math};
pub use measurement::{Algorithm, Measurement};
pub use policy::{BatchSizePolicy, WdSolver, WorkspacePolicy};
pub use units::{ARENA_ALIGNMENT, Bytes, Unusable};

pub(crate) use configuration::faster;
