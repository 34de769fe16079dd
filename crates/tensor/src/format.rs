//! What elements are, and in which order they lie.

/// The type of elements.
///
/// The planner, which knows no tensors, has a type of its own for what is a part of a kernel's name in tables and plans;
/// `cudnn_layers::conv` translates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// IEEE 754 binary32: today everything is computed in it.
    #[default]
    F32,
    /// Bytes that only the operation which wrote them can read: masks, saved state, scratch.
    U8,
}

impl ElementType {
    /// Bytes of an element, and what its address is a multiple of.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
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
    /// Bytes.
    pub const U8: Self = Self { dtype: ElementType::U8, layout: AxisOrder::Nchw };
}

/// A type that elements have on the host.
pub trait Element: bytemuck::Pod {
    /// Its name.
    const DTYPE: ElementType;
}

impl Element for f32 {
    const DTYPE: ElementType = ElementType::F32;
}

impl Element for u8 {
    const DTYPE: ElementType = ElementType::U8;
}
