//! The algorithms of a device.

#[cfg(feature = "cuda")]
use super::cuda;
use super::{ConvError, ConvOp, Convolver, Result, cpu, kernel_id};
#[cfg(not(feature = "cuda"))]
use crate::cudnn as cuda;
use planner::{KernelId, Math};
use std::sync::Arc;
use tensor::{ConvGeometry, Device, Format};

/// Every algorithm that applies to `micro_batch` samples of `kernel`; on a processor first the one that applies to
/// nearly everything.
///
/// # Errors
/// The geometry is invalid, or cuDNN fails or cannot be started.
pub fn candidates(device: &Device, kernel: &KernelId, micro_batch: u32) -> Result<Vec<Arc<dyn Convolver>>> {
    let geometry = super::geometry(&kernel.shape, micro_batch);
    all(device, kernel.op, geometry, (super::format(kernel), kernel.math), None)
}

/// The algorithm called `name` for `op` on `geometry`, in the device's format.
///
/// # Errors
/// There is none that applies; or as for [`candidates`].
pub fn find(device: &Device, op: ConvOp, g: ConvGeometry, name: &str) -> Result<Arc<dyn Convolver>> {
    let found = all(device, op, g, (device.format(), Math::Tf32), Some(name))?.pop();
    let unknown = |id: KernelId| format!("this device has no algorithm {name} for {op} of {}", id.shape);
    found.ok_or_else(|| ConvError::Refused(unknown(kernel_id(op, &g, device.format()))))
}

/// The algorithms that apply; with a `name`, the one of that name.
fn all(
    device: &Device,
    op: ConvOp,
    geometry: ConvGeometry,
    (format, math): (Format, Math),
    name: Option<&str>,
) -> Result<Vec<Arc<dyn Convolver>>> {
    let geometry = geometry.validate()?;
    match device {
        Device::Cpu(cpu) if format == Format::F32 => Ok(cpu::convolvers(cpu, op, geometry, name)),
        Device::Cpu(_) => Ok(Vec::new()),
        Device::Cuda(cuda) => cuda::convolvers(cuda, (op, geometry, format), math, name),
    }
}
