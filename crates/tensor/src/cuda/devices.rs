//! What GPUs there are, or what is missing.

use std::fmt;
use thiserror::Error;

/// Why no GPU can be used, in a line for the user.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Absent(pub(super) String);

/// The GPUs of this machine: proof that the driver and the libraries can be loaded.
#[derive(Clone, Debug)]
pub struct CudaDevices {
    /// The newest CUDA that the driver supports, and the driver's version.
    pub versions: String,
    /// At least one device, by ordinal.
    pub devices: Vec<CudaDeviceInfo>,
}

/// What identifies a GPU to a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDeviceInfo {
    /// Its number for the driver.
    pub ordinal: usize,
    /// Its model.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: [i32; 2],
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Highest clock of the multiprocessors, in MHz.
    pub clock_mhz: i32,
    /// Highest clock of the memory, in MHz.
    pub memory_clock_mhz: i32,
    /// All its memory, in bytes.
    pub memory_bytes: u64,
}

impl fmt::Display for CudaDeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, multiprocessors, clock_mhz, memory_clock_mhz, memory_bytes, .. } = self;
        let memory_gib = *memory_bytes as f64 / f64::from(1 << 30);
        write!(
            f,
            "{name} ({multiprocessors} multiprocessors at up to {clock_mhz} MHz, {memory_gib:.0} GiB at {memory_clock_mhz} MHz)"
        )
    }
}
