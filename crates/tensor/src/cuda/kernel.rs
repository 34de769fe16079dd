//! CUDA kernels' sources, grids and arguments.

use crate::{View, ViewMut};
#[cfg(feature = "cuda")]
use std::ffi::c_void;

/// CUDA C++ text with some `extern "C"` CUDA kernels.
#[derive(Debug)]
pub struct Source {
    /// Its file name, for messages of the compiler. Sources are told apart by it.
    pub name: &'static str,
    /// The text.
    pub text: &'static str,
}

/// How many threads run a CUDA kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block, in x.
    pub threads: u32,
    /// Whether all blocks run at once, so that they may wait for each other. It fails where the device has no room for
    /// them; a block of any size per multiprocessor has.
    pub at_once: bool,
}

impl Grid {
    /// `blocks` blocks of `threads` threads in one dimension.
    pub fn line(blocks: u32, threads: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads, at_once: false }
    }
}

/// One argument of a CUDA kernel.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A pointer.
    Address(u64),
    /// An `int`.
    I32(i32),
    /// An `unsigned`.
    U32(u32),
    /// An `unsigned long long`.
    U64(u64),
    /// A `float`.
    F32(f32),
    /// A struct by value, its bytes aligned as the struct is.
    Bytes(&'a [u8]),
}

/// A struct by value.
impl<'a, T: bytemuck::Pod> From<&'a T> for Arg<'a> {
    fn from(value: &'a T) -> Self {
        Self::Bytes(bytemuck::bytes_of(value))
    }
}

impl Arg<'_> {
    /// Where the value lies, as the driver wants to know.
    #[cfg(feature = "cuda")]
    pub(super) fn value(&self) -> *mut c_void {
        let value: *const c_void = match self {
            Self::Address(value) | Self::U64(value) => (&raw const *value).cast(),
            Self::I32(value) => (&raw const *value).cast(),
            Self::U32(value) => (&raw const *value).cast(),
            Self::F32(value) => (&raw const *value).cast(),
            Self::Bytes(bytes) => bytes.as_ptr().cast(),
        };
        value.cast_mut()
    }
}

/// A pointer to `float`s.
impl From<View<'_>> for Arg<'_> {
    fn from(view: View<'_>) -> Self {
        Self::Address(view.address::<f32>())
    }
}

/// A null pointer for `None`.
impl From<Option<View<'_>>> for Arg<'_> {
    fn from(view: Option<View<'_>>) -> Self {
        view.map_or(Self::Address(0), Arg::from)
    }
}

/// A pointer to `float`s.
impl From<&mut ViewMut<'_>> for Arg<'_> {
    fn from(view: &mut ViewMut<'_>) -> Self {
        Self::Address(view.address::<f32>())
    }
}

macro_rules! numbers {
    ($($variant:ident($number:ty)),+) => {$(
        impl From<$number> for Arg<'_> {
            fn from(value: $number) -> Self {
                Arg::$variant(value)
            }
        }
    )+};
}

numbers!(I32(i32), U32(u32), U64(u64), F32(f32));

impl From<usize> for Arg<'_> {
    fn from(value: usize) -> Self {
        Self::U64(value as u64)
    }
}
