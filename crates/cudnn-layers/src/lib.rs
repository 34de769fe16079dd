//! The operations of a CNN's layers on every device: the algorithms of a convolution, cuDNN's among them, how to run
//! and to measure them, and the other layers' arithmetic, for which cuDNN is not used.
//!
//! One folder per operation: `mod.rs` is the contract (formula, shapes, errors) and the one place that matches on the
//! device; `cpu.rs` or `cpu/` is the CPU's code; `cuda.rs` launches the GPU's, which stands in `<op>.cu`; `tests.rs`
//! holds bodies that every device must pass. An operation that is another one with fewer operands has no code of its
//! own. All operations panic where the lengths of operands do not fit. This crate knows no graph, no parameters and no
//! policy: it is told which algorithm to run on which samples.

/// `on_device!(device, function(arguments))`: that function in the operation's `cpu` or `cuda`, by the device.
macro_rules! on_device {
    ($device:expr, $function:ident($($argument:expr),*)) => {
        match $device {
            tensor::Device::Cpu(cpu) => cpu::$function(cpu, $($argument),*),
            tensor::Device::Cuda(cuda) => cuda::$function(cuda, $($argument),*),
        }
    };
}

pub mod activation;
pub mod batch_norm;
pub mod bias;
#[cfg(feature = "cuda")]
mod blas;
pub mod conv;
pub mod copy;
mod cpu_loops;
mod cpu_sums;
mod cuda_launches;
#[cfg_attr(not(feature = "cuda"), path = "without_cuda.rs")]
pub mod cudnn;
pub mod dropout;
pub mod eltwise;
pub mod extents;
pub mod inner_product;
#[cfg(feature = "cuda")]
mod lowering;
pub mod lrn;
pub mod pooling;
pub mod scale;
pub mod softmax;
pub mod space_to_depth;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod update;

#[cfg(not(feature = "cuda"))]
use cudnn as blas;
pub use extents::AxisExtents;
