//! The devices of this machine, as a user sees them.

use crate::Error;
use serde::Serialize;
use std::fmt;
use tensor::{Cpu, Device};

/// The device that `--device` names, with `threads` threads or all that there are.
pub(crate) fn open(name: &str, threads: Option<usize>) -> Result<Device, Error> {
    match name {
        "auto" | "cpu" => Ok(Device::Cpu(threads.map_or_else(Cpu::all_threads, Cpu::new))),
        _ => Err(Error::Usage(format!(
            "--device {name:?} is not there: the devices are cpu and auto (`microbatch devices` lists them)"
        ))),
    }
}

/// What identifies a device to a reader.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum DeviceReport {
    /// The host's processor.
    Cpu {
        /// What `--device` calls it.
        id: String,
        /// Its model.
        name: String,
        /// Threads in use.
        threads: usize,
        /// The instruction set that the kernels run on.
        instructions: &'static str,
    },
    /// An NVIDIA GPU.
    Cuda {
        /// What `--device` calls it.
        id: String,
        /// Its model, clocks and memory.
        name: String,
        /// Versions of driver, CUDA and cuDNN.
        versions: String,
    },
}

impl DeviceReport {
    /// Describes `device`.
    pub fn new(device: &Device) -> Self {
        match device {
            Device::Cpu(cpu) => Self::Cpu {
                id: "cpu".to_owned(),
                name: trainer::planning::processor_name(),
                threads: cpu.threads(),
                instructions: instructions(),
            },
            Device::Cuda(cuda) => Self::Cuda {
                id: format!("cuda:{}", cuda.info().ordinal),
                name: cuda.info().to_string(),
                versions: cudnn_layers::raw::versions(cuda),
            },
        }
    }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu { id, name, threads, instructions } => {
                let plural = if *threads == 1 { "" } else { "s" };
                write!(f, "{id}: {name}, {threads} thread{plural}, {instructions}")
            }
            Self::Cuda { id, name, versions } => write!(f, "{id}: {name}, {versions}"),
        }
    }
}

/// The widest vectors of this processor that our kernels use.
fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return "AVX2 with FMA";
        }
    }
    "portable code"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_that_exist_open() {
        let Device::Cpu(cpu) = open("cpu", Some(3)).unwrap() else { panic!("--device cpu is the processor") };
        assert_eq!(cpu.threads(), 3);
        assert!(open("cuda:99", None).unwrap_err().to_string().contains("\"cuda:99\""));
    }
}
