//! Convolutions without a net: shapes as a user types them, or as benchmarks list them.

mod csv;
mod typed;

pub use csv::{CsvError, read_csv};
pub use typed::parse_shape;

use cudnn_layers::conv::profile::geometry;
use planner::{ConvOp, ConvShape, Dtype, Kernel, KernelId, Layout, Math};

/// Largest extent of anything: products of two still fit 64 bits, as sizes in bytes must.
const MOST: u32 = 1 << 20;

/// Most elements of an operand: its bytes fit every counter of the way.
const MOST_ELEMENTS: u128 = 1 << 40;

/// A convolution with its mini-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// What it is called.
    pub name: String,
    /// Its geometry.
    pub shape: ConvShape,
    /// Samples per iteration.
    pub mini_batch: u32,
}

impl Convolution {
    /// Its kernels for these operations.
    pub fn kernels(&self, ops: &[ConvOp]) -> impl Iterator<Item = Kernel> {
        ops.iter().map(|&op| Kernel {
            name: self.name.clone(),
            id: KernelId { op, shape: self.shape, dtype: Dtype::F32, math: Math::Fp32, layout: Layout::Nchw },
            mini_batch: self.mini_batch,
        })
    }

    /// Refuses what no machine computes: a window that does not fit, groups that do not divide, operands beyond measure.
    fn check(&self) -> Result<(), String> {
        let ConvShape { c, h, w, k, r, s, pad, stride, dilation, groups } = self.shape;
        let extents = [c, h, w, k, r, s, groups, self.mini_batch].into_iter().chain(stride).chain(dilation);
        if let Some(extent) = extents.chain(pad).find(|&extent| extent > MOST) {
            return Err(format!("{extent} is more than {MOST}, the largest extent there is"));
        }
        let geometry =
            geometry(&self.shape, self.mini_batch).validate().map_err(|error| error.to_string())?;
        let product =
            |extents: [usize; 4]| extents.into_iter().map(|extent| extent as u128).product::<u128>();
        let (out_h, out_w) = (geometry.out_h(), geometry.out_w());
        let x = product([geometry.n, geometry.c, geometry.h, geometry.w]);
        let y = product([geometry.n, geometry.k, out_h, out_w]);
        let filter = product([geometry.k, geometry.c, geometry.r, geometry.s]);
        match [x, y, filter].into_iter().max() {
            Some(elements) if elements > MOST_ELEMENTS => {
                Err(format!("an operand would have {elements} elements, more than any machine holds"))
            }
            _ => Ok(()),
        }
    }
}
