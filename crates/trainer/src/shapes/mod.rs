//! Convolutions without a net: shapes as a user types them, or as benchmarks list them.

mod csv;
mod typed;

pub use csv::{parse_csv, read_csv};
pub use typed::parse_shape;

use cudnn_layers::conv::geometry;
use planner::{ConvOp, ConvShape, Dtype, Kernel, KernelId, Layout, Math};

/// A convolution with its mini-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeSpec {
    /// What it is called.
    pub name: String,
    /// Its geometry.
    pub shape: ConvShape,
    /// Samples per iteration.
    pub mini_batch: u32,
}

impl ShapeSpec {
    /// Its kernels for these operations.
    pub fn kernels(&self, ops: &[ConvOp]) -> impl Iterator<Item = Kernel> {
        ops.iter().map(|&op| Kernel {
            name: self.name.clone(),
            id: KernelId { op, shape: self.shape, dtype: Dtype::F32, math: Math::Fp32, layout: Layout::Nchw },
            mini_batch: self.mini_batch,
        })
    }

    /// Refuses what no machine computes: windows that do not fit, groups that do not divide, operands beyond measure.
    fn check(&self) -> Result<(), String> {
        geometry(&self.shape, self.mini_batch).validate().map(drop).map_err(|error| error.to_string())
    }
}
