//! Types of tensors, geometry, views, the arena, and the devices with their primitives.
//!
//! This crate knows nothing of layers or planning. Everything above it works on [`View`] and [`ViewMut`]: runs of bytes
//! in some device's memory, tagged with what they hold ([`Format`]) and handed out by one [`Arena`]. Only an operation
//! looks inside a view, at elements of the type that it computes with.
//!
//! | | on the CPU | on a GPU |
//! | --- | --- | --- |
//! | [`Device`] | [`Cpu`]: a pool of threads | [`cuda::Cuda`]: a context and its stream |
//! | [`Arena`] | one aligned allocation | one device allocation |
//! | inside a [`View`] | a slice of elements | a device address |
//! | data from the host ([`Staging`]) | written in place | copied through page-locked memory |
//! | data prepared ahead ([`Staged`]) | copied from memory of its own | the same, filled in a stream beside the work |
//! | time ([`Mark`]) | the clock | an event in the stream |

pub mod arena;
pub mod cpu;
pub mod cuda;
pub mod device;
pub mod format;
pub mod geometry;
pub mod rng;
pub mod space;
pub mod span;
pub mod staging;
pub mod tensor_type;
pub mod testing;
pub mod tolerance;
pub mod view;

pub use arena::{Arena, ArenaError, MemoryError};
pub use cpu::{Cpu, ThreadError};
pub use device::{Device, Mark};
pub use format::{AxisOrder, Bf16, Element, ElementType, Format};
pub use geometry::{ConvGeometry, GeometryError, PoolGeometry, Rounding};
pub use space::{ALIGNMENT, Space};
pub use span::{Cursor, Span};
pub use staging::{Setting, Staged, Staging};
pub use tensor_type::TensorType;
pub use view::{Address, TaggedBytes, View, ViewMut};

/// What an operation does with its output: overwrite it or add to it.
///
/// Every backward pass takes this explicitly. cuDNN's `alpha`/`beta` never appear above the file that calls cuDNN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accumulate {
    /// The output's old values are ignored.
    Replace,
    /// The result is added to the output's old values.
    Add,
}

/// Where a result goes, and what becomes of what is there.
#[derive(Debug)]
pub struct Out<'a> {
    /// Its elements.
    pub to: ViewMut<'a>,
    /// Whether it is added to them, as an earlier step has contributed already.
    pub accumulate: Accumulate,
}

impl<'a> Out<'a> {
    /// The same place for a shorter time.
    pub fn reborrow(&mut self) -> Out<'_> {
        Out { to: self.to.reborrow(), accumulate: self.accumulate }
    }

    /// Its elements, in host memory, and what becomes of their old values.
    pub fn into_host(self) -> (&'a mut [f32], Accumulate) {
        (self.to.into_host(), self.accumulate)
    }
}

impl<'a> ViewMut<'a> {
    /// For a result that replaces these elements.
    pub fn replaced(self) -> Out<'a> {
        Out { to: self, accumulate: Accumulate::Replace }
    }

    /// For a result that is added to these elements.
    pub fn added(self) -> Out<'a> {
        Out { to: self, accumulate: Accumulate::Add }
    }
}
