//! Shapes, geometry, views, the arena, and the devices with their primitives.
//!
//! This crate knows nothing of layers or planning. Everything above it works on [`View`] and [`ViewMut`]: runs of `f32`
//! in some device's memory, handed out by one [`Arena`]. Only the code of a backend looks inside a view.
//!
//! | | on the CPU | on a GPU |
//! | --- | --- | --- |
//! | [`Device`] | [`Cpu`]: a pool of threads | [`cuda::Cuda`]: a context and its stream |
//! | [`Arena`] | one aligned allocation | one device allocation |
//! | inside a [`View`] | a slice | a device address |
//! | data from the host ([`Staging`]) | written in place | copied through page-locked memory |
//! | time ([`Mark`]) | the clock | an event in the stream |

pub mod arena;
pub mod cpu;
pub mod cuda;
pub mod device;
pub mod dtype;
pub mod geometry;
pub mod rng;
pub mod shape;
pub mod staging;
pub mod testing;
pub mod view;

pub use arena::{Access, Arena, ArenaError, Lease, MemoryError, Span};
pub use cpu::{Cpu, ThreadError};
pub use device::{Device, Mark};
pub use dtype::Dtype;
pub use geometry::{ConvGeometry, GeometryError, PoolGeometry, Rounding};
pub use shape::Shape;
pub use staging::Staging;
pub use view::{View, ViewMut};

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
