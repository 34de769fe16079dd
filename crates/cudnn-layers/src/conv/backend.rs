//! Where convolutions run, and the algorithms there.

use super::{ConvError, ConvOp, Convolver, cpu};
use crate::cudnn::Cudnn;
use planner::{KernelId, Math};
use std::sync::Arc;
use tensor::{ConvGeometry, Cpu, Device, Format, cuda::Cuda};

/// Where convolutions run.
#[derive(Clone, Debug)]
pub enum ConvBackend {
    /// The threads of a processor.
    Cpu(Cpu),
    /// A handle of cuDNN, and its device.
    Cudnn(Cudnn, Cuda),
}

impl ConvBackend {
    /// The backend of `device`.
    ///
    /// # Errors
    /// cuDNN cannot be started.
    pub fn of(device: &Device) -> Result<Self, ConvError> {
        Ok(match device {
            Device::Cpu(cpu) => Self::Cpu(cpu.clone()),
            Device::Cuda(cuda) => Self::Cudnn(Cudnn::of(cuda)?, cuda.clone()),
        })
    }

    /// Every algorithm that applies to `micro_batch` samples of `kernel`; on a processor first the one that applies to
    /// nearly everything.
    ///
    /// # Errors
    /// The kernel is no convolution, or cuDNN fails.
    pub fn candidates(&self, id: &KernelId, micro_batch: u32) -> Result<Vec<Arc<dyn Convolver>>, ConvError> {
        let geometry = super::geometry(&id.shape, micro_batch);
        self.all(id.op, geometry, (super::format(id), id.math), None)
    }

    /// The algorithm called `name` for `op` on `geometry`, in the device's format.
    ///
    /// # Errors
    /// There is none that applies; or as for [`ConvBackend::candidates`].
    pub fn find(&self, op: ConvOp, g: ConvGeometry, name: &str) -> Result<Arc<dyn Convolver>, ConvError> {
        let format = match self {
            Self::Cudnn(_, cuda) => cuda.format(),
            Self::Cpu(cpu) => Device::Cpu(cpu.clone()).format(),
        };
        let found = self.all(op, g, (format, Math::Tf32), Some(name))?.pop();
        let unknown = || format!("this device has no algorithm {name} for {op} of {g:?}");
        found.ok_or_else(|| ConvError::Refused(unknown()))
    }

    /// The algorithms that apply; with a `name`, the one of that name.
    fn all(
        &self,
        op: ConvOp,
        geometry: ConvGeometry,
        (format, math): (Format, Math),
        name: Option<&str>,
    ) -> Result<Vec<Arc<dyn Convolver>>, ConvError> {
        let geometry = geometry.validate()?;
        match self {
            Self::Cpu(cpu) if format == Format::F32 => {
                let wanted = |other: &str| name.is_none_or(|name| name == other);
                Ok(cpu::convolvers(cpu, op, geometry, &wanted))
            }
            Self::Cpu(_) => Ok(Vec::new()),
            Self::Cudnn(cudnn, cuda) => cudnn.convolvers(cuda, (op, geometry, format), math, name),
        }
    }
}
