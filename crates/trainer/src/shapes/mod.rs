//! Convolutions without a net: shapes as a user types them, or as benchmarks list them.

mod csv;
mod typed;

pub use csv::{parse_csv, read_csv};
pub use typed::parse_shape;

use cudnn_layers::conv::{geometry, kernel_id};
use planner::{ConvOp, ConvShape, Kernel};
use tensor::Format;

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
    /// Its kernels for these operations, with feature maps of this format.
    pub fn kernels(&self, ops: &[ConvOp], format: Format) -> impl Iterator<Item = Kernel> {
        ops.iter().map(move |&op| Kernel {
            name: self.name.clone(),
            id: kernel_id(op, &geometry(&self.shape, 1), format),
            mini_batch: self.mini_batch,
        })
    }

    /// Refuses what no machine computes: windows that do not fit, groups that do not divide, operands beyond measure.
    fn check(&self) -> Result<(), String> {
        geometry(&self.shape, self.mini_batch).validate().map(drop).map_err(|error| error.to_string())
    }
}
