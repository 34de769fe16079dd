//! What the operating system says of this process and machine: `None` where it does not say.

mod limits;

use crate::{NetError, Result};
use planner::Bytes;
use std::{fs, path::Path};
use tensor::Device;

/// The words that this process was called with, as far as they are text.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Memory of this process that is resident now.
pub fn resident() -> Option<Bytes> {
    field(Path::new("/proc/self/status"), "VmRSS:")
}

/// Gives memory that was freed back to the system, so that [`resident`] is what is in use. The C library keeps freed
/// memory for later, tens of MiB after profiling, and takes what is allocated next from there; elsewhere than with
/// glibc nothing is done.
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

/// How much of the host's memory may be taken, and locked for a GPU, for what is offloaded: at most three quarters of
/// what is available, as data and others want the rest.
pub fn lockable() -> Bytes {
    Bytes(available_memory().map_or(u64::MAX >> 8, |(_, bytes)| bytes.0) / 4 * 3)
}

/// Refuses a run that needs more memory than is left to this process, or to the GPU: `arena` on the device and `host`
/// beside it. What of the latter was not resident `at_start` and now is, is there already.
///
/// # Errors
/// The run is too large, or a GPU does not answer.
pub fn check_memory(device: &Device, [arena, host]: [Bytes; 2], at_start: Option<Bytes>) -> Result<()> {
    let there = resident().zip(at_start).map(|(now, start)| now.saturating_sub(start));
    let host = host.saturating_sub(there.unwrap_or_default());
    let refuse = |needed: Bytes, (place, available)| match needed > available {
        true => Err(NetError::Refused(format!(
            "the run needs {needed} more, and {place} has {available} of memory left; a smaller --batch needs less"
        ))),
        false => Ok(()),
    };
    let on_host = match device {
        Device::Cpu(_) => arena + host,
        Device::Cuda(cuda) => {
            refuse(arena, ("the GPU", Bytes(cuda.memory()?[0])))?;
            host
        }
    };
    available_memory().map_or(Ok(()), |left| refuse(on_host, left))
}

/// Whether this process was started to ignore `signal`.
pub fn ignores(signal: i32) -> bool {
    let ignored =
        text(Path::new("/proc/self/status"), "SigIgn:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    ignored.is_some_and(|mask| (mask >> (signal - 1)) & 1 == 1)
}

/// The size behind `name` in one of Linux's lists of sizes in kB.
fn field(file: &Path, name: &str) -> Option<Bytes> {
    text(file, name)?.strip_suffix("kB")?.trim().parse().ok().map(|kib: u64| Bytes(kib << 10))
}

/// What stands behind `name` in one of Linux's lists.
fn text(file: &Path, name: &str) -> Option<String> {
    fs::read_to_string(file).ok()?.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_at_least_what_is_resident_and_some_memory_is_left() {
        let (resident, peak) = (resident().unwrap(), peak_resident().unwrap());
        assert!(Bytes(100 << 10) < resident && resident <= peak, "{resident} resident, {peak} at the peak");
        let total = field(Path::new("/proc/meminfo"), "MemTotal:").unwrap();
        let (_, left) = available_memory().unwrap();
        assert!(peak < total && left > Bytes::ZERO && left <= total, "{left} of {total}");
    }
}
