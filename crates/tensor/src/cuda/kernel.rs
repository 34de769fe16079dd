//! CUDA kernels' sources, grids and arguments.

use crate::View;
#[cfg(feature = "cuda")]
use std::ffi::c_void;

/// CUDA C++ text with some `extern "C"` CUDA kernels.
#[derive(Debug)]
pub struct Source {
    /// Its file name, for messages of the compiler. Sources are told apart by it.
    pub name: &'static str,
    /// The text, in parts, which several sources may share.
    pub text: &'static [&'static str],
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
    /// A number or a pointer: the first of these bytes in memory, as many as its type has.
    Value(u64),
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
            Self::Value(value) => (&raw const *value).cast(),
            Self::Bytes(bytes) => bytes.as_ptr().cast(),
        };
        value.cast_mut()
    }
}

/// A pointer to `float`s.
impl From<View<'_>> for Arg<'_> {
    fn from(view: View<'_>) -> Self {
        Self::Value(view.address::<f32>())
    }
}

/// A null pointer for `None`.
impl From<Option<View<'_>>> for Arg<'_> {
    fn from(view: Option<View<'_>>) -> Self {
        view.map_or(Self::Value(0), Arg::from)
    }
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl From<$number> for Arg<'_> {
            fn from(value: $number) -> Self {
                let mut bytes = [0; 8];
                bytes[..size_of::<$number>()].copy_from_slice(&value.to_ne_bytes());
                Self::Value(u64::from_ne_bytes(bytes))
            }
        }
    )+};
}

numbers!(i32, u32, u64, usize, f32);
