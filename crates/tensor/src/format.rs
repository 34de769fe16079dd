//! What elements are, and in which order they lie.

use std::fmt;

/// The type of elements.
///
/// The planner, which knows no tensors, has a type of its own for what is a part of a kernel's name in tables and
/// plans; `cudnn_layers::conv` translates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// IEEE 754 binary32: everything is computed in it.
    #[default]
    F32,
    /// Its upper half, in which a GPU may keep feature maps.
    Bf16,
    /// Bytes that only the operation which wrote them can read: masks, saved state, scratch.
    U8,
}

impl ElementType {
    /// Bytes of an element, and what its address is a multiple of.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }
}

/// The order of an image's elements in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AxisOrder {
    /// Sample by sample, channel by channel, row by row.
    #[default]
    Nchw,
    /// Sample by sample, row by row, pixel by pixel, all channels of a pixel side by side. Filters likewise: K, R, S,
    /// C. Of a blob of any rank, axis 1 comes last.
    Nhwc,
}

/// What a run of memory holds: the tag of every view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Format {
    /// The elements' type.
    pub dtype: ElementType,
    /// Their order.
    pub layout: AxisOrder,
}

impl Format {
    /// Single precision, NCHW.
    pub const F32: Self = Self { dtype: ElementType::F32, layout: AxisOrder::Nchw };
    /// BF16, NCHW.
    pub const BF16: Self = Self { dtype: ElementType::Bf16, layout: AxisOrder::Nchw };
    /// Bytes.
    pub const U8: Self = Self { dtype: ElementType::U8, layout: AxisOrder::Nchw };

    /// The same elements in this order.
    pub const fn in_order(self, layout: AxisOrder) -> Self {
        Self { layout, ..self }
    }
}

/// As `BF16 in NHWC`, for people.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtype = match self.dtype {
            ElementType::F32 => "FP32",
            ElementType::Bf16 => "BF16",
            ElementType::U8 => "bytes",
        };
        let layout = match self.layout {
            AxisOrder::Nchw => "NCHW",
            AxisOrder::Nhwc => "NHWC",
        };
        write!(f, "{dtype} in {layout}")
    }
}

/// A number of BF16 on the host.
pub use half::bf16 as Bf16;

/// A type that elements have on the host.
pub trait Element: bytemuck::Pod {
    /// What memory holds that is made of them, in NCHW.
    const FORMAT: Format;
}

impl Element for f32 {
    const FORMAT: Format = Format::F32;
}

impl Element for Bf16 {
    const FORMAT: Format = Format::BF16;
}

impl Element for u8 {
    const FORMAT: Format = Format::U8;
}
