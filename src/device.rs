//! The devices of this machine, as a user sees them.

use crate::Result;
use crate::tables::{Shipped, is_recorded};
use figures::counted;
use serde::Serialize;
use std::fmt;
use tensor::{AxisOrder, Cpu, Device, ElementType, Format, cuda};

/// The device that `--device` names: the processor with `threads` threads or all that there are, or a GPU, whose
/// products may round to TF32 if `tf32` and whose feature maps are of `format`. `auto` is the first GPU, if GPUs
/// work here and no threads are given.
pub(crate) fn open(name: &str, threads: Option<usize>, tf32: bool, format: Format) -> Result<Device> {
    let device = match (name, ordinal(name)?) {
        (_, Some(ordinal)) => open_gpu(ordinal, tf32, format)?,
        ("auto", None) if threads.is_none() && cuda::probe().is_ok() => open_gpu(0, tf32, format)?,
        _ => Device::Cpu(Cpu::try_new(threads)?),
    };
    let of_a_gpu = [
        (tf32, "--math tf32", "fp32"),
        (format.dtype != ElementType::F32, "--dtype bf16", "fp32"),
        (format.layout != AxisOrder::Nchw, "--layout nhwc", "nchw"),
    ];
    match (&device, of_a_gpu.into_iter().find(|(is_given, ..)| *is_given)) {
        (Device::Cuda(_), _) if threads.is_some() => {
            Err(usage!("--threads has no effect on --device {name}"))
        }
        (Device::Cpu(_), Some((_, option, own))) => Err(usage!("{option} needs a GPU; a CPU has {own} only")),
        _ => Ok(device),
    }
}

/// The devices that `--device` names, one for each rank: a list, `all` GPUs, or one.
pub(crate) fn listed(name: &str) -> Result<Vec<String>> {
    if name == "all" {
        let gpus = cuda::probe().map_err(|absent| usage!("--device all: {absent}"))?;
        return Ok((0..gpus.devices.len()).map(|ordinal| format!("cuda:{ordinal}")).collect());
    }
    if !name.contains(',') || is_recorded(name) {
        return Ok(vec![name.to_owned()]);
    }
    // A number alone is that of another GPU.
    let gpu = |part: &str| part.parse().map_or_else(|_| ordinal(part), |gpu| Ok(Some(gpu)));
    let device = |part: &str| Ok(gpu(part)?.map_or(part.to_owned(), |gpu| format!("cuda:{gpu}")));
    let devices = name.split(',').map(device).collect::<Result<Vec<String>>>()?;
    let is_twice = |&at: &usize| devices[at] != "cpu" && devices[..at].contains(&devices[at]);
    match (0..devices.len()).find(is_twice) {
        Some(at) => Err(usage!("--device {name} has {} twice", devices[at])),
        None => Ok(devices),
    }
}

/// The device of one of several processes of this machine, each of which names the same.
pub(crate) fn of_rank(name: &str, local_rank: usize) -> Result<String> {
    let gpus = cuda::probe().map_or(0, |gpus| gpus.devices.len());
    match name {
        // A launcher may show each process its own GPU only.
        "auto" | "cuda" | "all" if gpus > 0 => Ok(format!("cuda:{}", local_rank % gpus)),
        _ if name.contains(',') => Err(usage!(
            "--device {name} names several, and a launcher has started several processes: each has one"
        )),
        _ => Ok(name.to_owned()),
    }
}

/// A GPU whose products may round to TF32 if `tf32`, with feature maps of this format.
fn open_gpu(ordinal: usize, tf32: bool, format: Format) -> Result<Device> {
    let gpus = cuda::probe().map_err(|absent| usage!("--device cuda:{ordinal}: {absent}"))?;
    let mut cuda = gpus.open(ordinal).map_err(trainer::NetError::from)?;
    (cuda.tf32, cuda.format) = (tf32, format);
    let [major, minor] = cuda.info().compute_capability;
    refuse_if!(
        format.dtype == ElementType::Bf16 && major < 8,
        "--dtype bf16 needs a GPU of compute capability 8.0, and {} has {major}.{minor}",
        cuda.info().name
    );
    Ok(Device::Cuda(cuda))
}

/// The number of the GPU that `name` names, if it names one.
fn ordinal(name: &str) -> Result<Option<usize>> {
    let unknown = || {
        usage!(
            "--device {name:?} is not there: the devices are cpu, cuda, cuda:N and auto (`microbatch devices` lists them), \
             for `train` and `time` lists of them, and for `plan` and `figures` {} and recorded:FILE",
            Shipped::names()
        )
    };
    refuse_if!(
        is_recorded(name),
        "--device {name:?} is a table of measurements: `microbatch plan` and `figures` read it, nothing runs on it"
    );
    match name {
        "auto" | "cpu" => Ok(None),
        "cuda" => Ok(Some(0)),
        _ => name.strip_prefix("cuda:").and_then(|n| n.parse().ok()).map(Some).ok_or_else(unknown),
    }
}

/// What identifies a device to a reader; `--device` calls it by its `id`.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum DeviceReport {
    Cpu {
        id: String,
        name: String,
        threads: usize,
        /// The instruction set that the kernels run on.
        instructions: &'static str,
        /// Why there is no GPU to run on, if there is none.
        no_gpu: Option<String>,
    },
    Cuda {
        id: String,
        /// Its model, clocks and memory.
        name: String,
        /// Versions of driver, CUDA and cuDNN.
        versions: String,
        /// The arithmetic that products may use: `fp32` or `tf32`.
        math: &'static str,
        /// What feature maps consist of, and in which order: `FP32 in NCHW`.
        format: String,
    },
}

impl DeviceReport {
    pub(crate) fn new(device: &Device) -> Self {
        match device {
            Device::Cpu(cpu) => Self::Cpu {
                id: "cpu".to_owned(),
                name: tensor::cpu::processor_name(),
                threads: cpu.threads(),
                instructions: tensor::cpu::instruction_set(),
                no_gpu: cuda::probe().err().map(|absent| absent.to_string()),
            },
            Device::Cuda(cuda) => Self::Cuda {
                id: format!("cuda:{}", cuda.info().ordinal),
                name: cuda.info().to_string(),
                versions: cudnn_layers::cudnn::versions(cuda),
                math: if cuda.tf32 { "tf32" } else { "fp32" },
                format: cuda.format.to_string(),
            },
        }
    }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu { id, name, threads, instructions, no_gpu } => {
                write!(f, "{id}: {name}, {}, {instructions}", counted(*threads, "thread"))?;
                no_gpu.iter().try_for_each(|reason| write!(f, "\n              no GPU: {reason}"))
            }
            Self::Cuda { id, name, versions, math, format } => {
                write!(
                    f,
                    "{id}: {name}\n              {versions}; products in {math}, feature maps in {format}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_gpu_is_no_two_devices_however_it_is_written() {
        assert_eq!(listed("cpu,cpu").unwrap(), ["cpu", "cpu"]);
        assert_eq!(listed("cuda,1,cuda:02").unwrap(), ["cuda:0", "cuda:1", "cuda:2"]);
        for twice in ["cuda,0", "0,cuda:0", "cuda:1,0,cuda:01"] {
            let refusal = listed(twice).unwrap_err().to_string();
            assert!(refusal.contains("twice"), "{twice}: {refusal}");
        }
        assert!(listed("0,,1").is_err() && listed("cpu,gpu").is_err());
    }

    #[test]
    fn only_devices_that_exist_open() {
        let cpu = |name, threads| match open(name, threads, false, Format::F32).unwrap() {
            Device::Cpu(cpu) => cpu.threads(),
            Device::Cuda(_) => panic!("--device {name} is the processor"),
        };
        assert_eq!((cpu("cpu", Some(3)), cpu("auto", Some(2))), (3, 2));
        let refusal = |name, threads, tf32| open(name, threads, tf32, Format::F32).unwrap_err().to_string();
        assert!(refusal("gpu", None, false).contains("\"gpu\""));
        assert!(refusal("cuda:x", None, false).contains("\"cuda:x\""));
        assert!(refusal("cuda:99", None, false).contains("99"));
        assert!(refusal("cpu", None, true).contains("--math tf32"));
        let format = |format| open("cpu", None, false, format).unwrap_err().to_string();
        assert_eq!(format(Format::BF16), "--dtype bf16 needs a GPU; a CPU has fp32 only");
        let nhwc = Format::F32.in_order(AxisOrder::Nhwc);
        assert_eq!(format(nhwc), "--layout nhwc needs a GPU; a CPU has nchw only");
    }
}
