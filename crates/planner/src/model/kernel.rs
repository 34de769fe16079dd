//! What identifies a convolution kernel: the operation, its geometry and how its operands are stored.

use super::{measurement::is_default, names::printed};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One of the three convolution operations of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConvOp {
    /// y from x and w.
    Forward,
    /// dx from dy and w.
    BackwardData,
    /// dw from x and dy: the one whose micro-batches add up in the same output.
    BackwardFilter,
}

impl ConvOp {
    /// All three, in the order of a training step.
    pub const ALL: [Self; 3] = [Self::Forward, Self::BackwardData, Self::BackwardFilter];
}

printed!(ConvOp { Forward: "Forward", BackwardData: "BackwardData", BackwardFilter: "BackwardFilter" });

/// Geometry of a convolution without its batch: x is (N, c, h, w), the filter (k, c / groups, r, s).
///
/// The default is a 1x1 convolution of one pixel and one channel, for struct expressions to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConvShape {
    /// Input channels.
    pub c: u32,
    /// Input height.
    pub h: u32,
    /// Input width.
    pub w: u32,
    /// Output channels.
    pub k: u32,
    /// Filter height.
    pub r: u32,
    /// Filter width.
    pub s: u32,
    /// Zeros added on each side, (vertical, horizontal).
    pub pad: [u32; 2],
    /// Step of the filter, (vertical, horizontal).
    pub stride: [u32; 2],
    /// Distance of neighbouring filter taps, (vertical, horizontal); with 1 none is skipped.
    pub dilation: [u32; 2],
    /// Number of groups that input and output channels are divided into.
    pub groups: u32,
    /// If x is stored as blocks of stride x stride pixels, each one pixel of more channels (space-to-depth): their number
    /// is padded to a multiple of this. Else 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pack: u32,
}

impl ConvShape {
    /// Height and width of the output; as `f64`, as no extents overflow it.
    pub fn output(&self) -> [f64; 2] {
        let extent = |size: u32, taps: u32, axis: usize| {
            let covered = f64::from(self.dilation[axis]) * (f64::from(taps) - 1.0) + 1.0;
            let room = f64::from(size) + 2.0 * f64::from(self.pad[axis]) - covered;
            (room / f64::from(self.stride[axis].max(1))).floor().max(0.0) + 1.0
        };
        [extent(self.h, self.r, 0), extent(self.w, self.s, 1)]
    }
}

impl Default for ConvShape {
    fn default() -> Self {
        let (pad, [stride, dilation]) = ([0, 0], [[1, 1]; 2]);
        Self { c: 1, h: 1, w: 1, k: 1, r: 1, s: 1, pad, stride, dilation, groups: 1, pack: 0 }
    }
}

impl fmt::Display for ConvShape {
    /// Leaves out what has its neutral value, as in `64x27x27, 192 filters 5x5, pad 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}, {} filters {}x{}", self.c, self.h, self.w, self.k, self.r, self.s)?;
        let Self { pad, stride, dilation, .. } = *self;
        for (name, pair, neutral) in [("pad", pad, 0), ("stride", stride, 1), ("dilation", dilation, 1)] {
            match pair {
                [a, b] if a == neutral && b == neutral => (),
                [a, b] if a == b => write!(f, ", {name} {a}")?,
                [a, b] => write!(f, ", {name} {a}x{b}")?,
            }
        }
        if self.groups != 1 {
            write!(f, ", {} groups", self.groups)?;
        }
        if self.pack != 0 { write!(f, ", in packs of {}", self.pack) } else { Ok(()) }
    }
}

/// Element type of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE 754 single precision.
    F32,
    /// Feature maps in BF16; filters and their gradients stay in single precision.
    Bf16,
}

/// Arithmetic allowed inside a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Math {
    /// Single-precision multiply and add throughout.
    Fp32,
    /// Multiplicands may be rounded to TF32 (10 bits of fraction) on tensor cores.
    Tf32,
}

printed!(Math { Fp32: "FP32", Tf32: "TF32" });

/// Order of the dimensions in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Layout {
    /// Sample, channel, row, column; the column runs fastest.
    Nchw,
    /// Sample, row, column, channel; the channel runs fastest.
    Nhwc,
}

/// All that time and workspace of a kernel depend on, but the number of samples: kernels equal in it are measured once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KernelId {
    /// The operation.
    pub op: ConvOp,
    /// The geometry.
    pub shape: ConvShape,
    /// Element type of feature maps and their gradients.
    pub dtype: Dtype,
    /// Arithmetic allowed.
    pub math: Math,
    /// Layout of feature maps and their gradients.
    pub layout: Layout,
}

/// One kernel of a net: what is planned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kernel {
    /// Name of the layer, such as `conv2`.
    pub name: String,
    /// What the kernel computes.
    pub id: KernelId,
    /// Samples per iteration.
    pub mini_batch: u32,
}

impl fmt::Display for Kernel {
    /// The layer and the operation, as in `conv2 Forward`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.name, self.id.op))
    }
}
