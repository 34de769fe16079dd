//! What the operating system says of this process and machine: `None` where it does not say.

mod limits;

use planner::Bytes;
use std::{fs, path::Path};

/// Memory of this process that is resident now.
pub fn resident() -> Option<Bytes> {
    field(Path::new("/proc/self/status"), "VmRSS:")
}

/// Gives memory that was freed back to the system, so that [`resident`] is what is in use. The C library keeps freed
/// memory for later, tens of MiB after profiling, and takes what is allocated next from there; elsewhere than with glibc
/// nothing is done.
pub fn release_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: this is the declaration of glibc's manual, of a function for any thread at any time. It needs nothing
        // of its caller, and touches no memory that is in use.
        unsafe extern "C" {
            safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        malloc_trim(0);
    }
}

/// The most that was ever resident.
pub fn peak_resident() -> Option<Bytes> {
    field(Path::new("/proc/self/status"), "VmHWM:")
}

/// How much more this process may have, and what sets that limit.
pub fn available_memory() -> Option<(&'static str, Bytes)> {
    limits::available(Path::new("/"))
}

/// Whether this process was started to ignore `signal`.
pub fn ignores(signal: i32) -> bool {
    let ignored =
        text(Path::new("/proc/self/status"), "SigIgn:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    ignored.is_some_and(|mask| (mask >> (signal - 1)) & 1 == 1)
}

/// The size behind `name` in one of Linux's lists of sizes in kB.
fn field(file: &Path, name: &str) -> Option<Bytes> {
    text(file, name)?.strip_suffix("kB")?.trim().parse().ok().map(Bytes::kib)
}

/// What stands behind `name` in one of Linux's lists.
fn text(file: &Path, name: &str) -> Option<String> {
    let list = fs::read_to_string(file).ok()?;
    list.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_at_least_what_is_resident_and_some_memory_is_left() {
        let (resident, peak) = (resident().unwrap(), peak_resident().unwrap());
        assert!(Bytes::kib(100) < resident && resident <= peak, "{resident} resident, {peak} at the peak");
        let total = field(Path::new("/proc/meminfo"), "MemTotal:").unwrap();
        let (_, left) = available_memory().unwrap();
        assert!(peak < total && left > Bytes::ZERO && left <= total, "{left} of {total}");
    }

    /// Small pieces, which the C library keeps when they are freed: one behind them stays in use.
    #[test]
    #[cfg(target_env = "gnu")]
    fn freed_memory_is_not_resident() {
        let pieces: Vec<Vec<u8>> = (0..16_384).map(|_| vec![1; 4000]).collect();
        let kept = vec![1u8; 4000];
        let before = resident().unwrap();
        drop(pieces);
        release_freed();
        let after = resident().unwrap();
        assert!(after + Bytes::mib(50) < before, "{before} before, {after} after {} bytes kept", kept.len());
    }
}
