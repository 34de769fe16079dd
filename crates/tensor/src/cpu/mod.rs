//! The host's processor as a device: a pool of threads, SIMD, matrix products.

mod block_gemm;
mod denormals;
mod gemm;
mod parallel;
mod processor;
mod simd;

use crate::Format;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;
use thiserror::Error;

pub use block_gemm::{Left, MAX_VECTORS, block_gemm};
pub use gemm::{Matrix, gemm};
pub use parallel::SharedMut;
pub use processor::{instruction_set, processor_name};
pub use simd::{LANES, Lanes, WithLanes, dispatch};

/// A pool of threads. Cheap to clone; clones share the pool.
///
/// Results never depend on the number of threads: work is cut by index, and every output value is computed by one
/// task in a fixed order. All of it is done on the pool's threads, where denormals count as zeros (on x86-64).
#[derive(Clone, Debug)]
pub struct Cpu {
    pool: Arc<ThreadPool>,
    /// See [`Device::set_format`](crate::Device::set_format).
    pub(crate) format: Format,
}

impl Cpu {
    /// A pool of `threads` threads (at least one), or of as many as the operating system offers this process.
    ///
    /// # Errors
    /// The operating system refuses to start a thread.
    pub fn try_new(threads: Option<usize>) -> Result<Self, ThreadError> {
        let threads = threads.unwrap_or_else(Self::available_threads).max(1);
        let builder = ThreadPoolBuilder::new().num_threads(threads);
        let pool = builder.start_handler(|_| denormals::flush_on_this_thread()).build();
        let pool =
            pool.map_err(|error| ThreadError(format!("{threads} threads cannot be started: {error}")))?;
        // Once all have started: a thread that the system refuses is to be an error, unlike memory that it refuses.
        pool.broadcast(|_| gemm::allocate_for_this_thread());
        Ok(Self { pool: Arc::new(pool), format: Format::F32 })
    }

    /// As [`Cpu::try_new`], for where a handful of threads can be relied upon: tests and benchmarks.
    ///
    /// # Panics
    /// If the operating system refuses to start a thread.
    pub fn new(threads: usize) -> Self {
        Self::try_new(Some(threads)).expect("the operating system starts a handful of threads")
    }

    /// As many threads as the operating system offers this process.
    pub fn available_threads() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs `body` on a thread of the pool. Parallel loops started inside it need not wake the pool again.
    pub fn run<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        self.pool.install(body)
    }
}

/// Threads that the operating system refuses, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ThreadError(String);
