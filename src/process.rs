//! What the operating system says of this process and machine; nothing where it does not say.

use planner::Bytes;
use std::fs;

/// Memory of this process that is resident now.
pub(crate) fn resident() -> Option<Bytes> {
    field("/proc/self/status", "VmRSS:")
}

/// The most that was ever resident.
pub(crate) fn peak_resident() -> Option<Bytes> {
    field("/proc/self/status", "VmHWM:")
}

/// Memory of the machine.
pub(crate) fn machine_memory() -> Option<Bytes> {
    field("/proc/meminfo", "MemTotal:")
}

/// The size behind `name` in one of Linux's lists of sizes in kB.
fn field(file: &str, name: &str) -> Option<Bytes> {
    let list = fs::read_to_string(file).ok()?;
    let value = list.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok().map(Bytes::kib)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_at_least_what_is_resident_and_the_machine_has_more() {
        let (resident, peak) = (resident().unwrap(), peak_resident().unwrap());
        assert!(Bytes::kib(100) < resident && resident <= peak, "{resident} resident, {peak} at the peak");
        assert!(peak < machine_memory().unwrap());
    }
}
