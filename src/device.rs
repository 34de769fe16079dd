//! The devices of this machine, as a user sees them.

use crate::Error;
use serde::Serialize;
use std::{fmt, path::Path};
use tensor::{Cpu, Device};

/// The device that `--device` names, with `threads` threads or all that there are.
pub(crate) fn open(name: &str, threads: Option<usize>) -> Result<Device, Error> {
    match name {
        "auto" | "cpu" => Ok(Device::Cpu(threads.map_or_else(Cpu::all_threads, Cpu::new))),
        _ if recorded(name).is_some() => Err(Error::Usage(format!(
            "--device {name:?} is a table of measurements: `microbatch plan` plans from it, nothing runs on it"
        ))),
        _ => Err(Error::Usage(format!(
            "--device {name:?} is not there: the devices are cpu and auto (`microbatch devices` lists them)"
        ))),
    }
}

/// The cost table that `--device` names, if it names one.
pub(crate) fn recorded(name: &str) -> Option<&Path> {
    name.strip_prefix("recorded:").map(Path::new)
}

/// What identifies a device to a reader.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// What `--device` calls it.
    pub id: &'static str,
    /// Its model.
    pub name: String,
    /// Threads in use.
    pub threads: usize,
    /// The instruction set that the kernels run on.
    pub instructions: &'static str,
}

impl DeviceReport {
    /// Describes `device`.
    pub fn new(device: &Device) -> Self {
        let Device::Cpu(cpu) = device;
        let name = trainer::planning::processor_name();
        Self { id: "cpu", name, threads: cpu.threads(), instructions: trainer::planning::instruction_set() }
    }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.threads == 1 { "" } else { "s" };
        write!(f, "{}: {}, {} thread{plural}, {}", self.id, self.name, self.threads, self.instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_that_exist_open() {
        let Device::Cpu(cpu) = open("auto", Some(3)).unwrap();
        assert_eq!(cpu.threads(), 3);
        assert!(open("cuda:0", None).unwrap_err().to_string().contains("\"cuda:0\""));
    }
}
