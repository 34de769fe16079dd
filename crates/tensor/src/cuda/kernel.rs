//! CUDA kernels' sources and grids.

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
