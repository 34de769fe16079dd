//! What elements are, and in which order they lie.

/// The type of elements.
///
/// The planner, which knows no tensors, has a type of its own for what is a part of a kernel's name in tables and plans;
/// `cudnn_layers::conv` translates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE 754 binary32: today everything is computed in it.
    #[default]
    F32,
    /// Bytes that only the operation which wrote them can read: masks, saved state, scratch.
    U8,
}

impl Dtype {
    /// Bytes of an element, and what its address is a multiple of.
    pub const fn bytes(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::U8 => 1,
        }
    }
}

/// The order of an image's elements in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Sample by sample, channel by channel, row by row.
    #[default]
    Nchw,
}

/// What a run of memory holds: the tag of every view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Format {
    /// The elements' type.
    pub dtype: Dtype,
    /// Their order.
    pub layout: Layout,
}

impl Format {
    /// Single precision, NCHW.
    pub const F32: Self = Self { dtype: Dtype::F32, layout: Layout::Nchw };
    /// Bytes.
    pub const U8: Self = Self { dtype: Dtype::U8, layout: Layout::Nchw };
}

/// A type that elements have on the host.
pub trait Element: bytemuck::Pod {
    /// Its name.
    const DTYPE: Dtype;
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;
}

impl Element for u8 {
    const DTYPE: Dtype = Dtype::U8;
}
