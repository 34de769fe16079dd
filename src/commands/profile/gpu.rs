//! Measuring cuDNN's convolutions on a GPU.

use crate::Error;
use cudnn_layers::{
    conv::{ProfileOptions, cuda::CudaProfiler},
    raw::Cudnn,
};
use planner::DeviceHeader;
use tensor::cuda::{CudaDevices, probe};
use trainer::{error::BoxError, planning::Planning};

/// Measurements on the GPU that `device` names: `cuda`, or `cuda:1` for the second.
pub(super) fn planning(device: &str, options: ProfileOptions) -> Result<Planning, Error> {
    let index = match device.strip_prefix("cuda").map(|rest| rest.strip_prefix(':').unwrap_or("0")) {
        Some(number) if device == "cuda" || device.starts_with("cuda:") => number.parse().ok(),
        _ => None,
    };
    let index: usize =
        index.ok_or_else(|| Error::Usage(format!("--device {device:?} is no GPU: write cuda or cuda:1")))?;
    open(index, options).map_err(Error::Gpu)
}

fn open(index: usize, options: ProfileOptions) -> Result<Planning, BoxError> {
    let gpus = probe()?;
    let cudnn = Cudnn::new(&gpus.open(index)?)?;
    let header = header(&gpus, &cudnn);
    Ok(Planning::with_profiler(header, Box::new(CudaProfiler::new(cudnn, options)?)))
}

/// Everything about the GPU and its libraries that measurements depend on.
fn header(gpus: &CudaDevices, cudnn: &Cudnn) -> DeviceHeader {
    let driver = gpus.driver.as_deref().unwrap_or("of unknown version");
    DeviceHeader {
        name: cudnn.cuda().info().to_string(),
        library_version: format!("cuDNN {}, CUDA {}, driver {driver}", cudnn.version(), gpus.cuda),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        ..DeviceHeader::default()
    }
}
