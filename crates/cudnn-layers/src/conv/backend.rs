//! Where convolutions run, and the algorithms there.

use super::{ConvError, ConvOp, Convolver, cpu};
use crate::cudnn::Cudnn;
use planner::{KernelId, Math};
use std::sync::Arc;
use tensor::{ConvGeometry, Cpu, Device};

/// Where convolutions run.
#[derive(Clone, Debug)]
pub enum ConvBackend {
    /// The threads of a processor.
    Cpu(Cpu),
    /// A handle of cuDNN, and the stream it works in.
    Cudnn(Cudnn),
}

impl ConvBackend {
    /// The backend of `device`.
    ///
    /// # Errors
    /// cuDNN cannot be started.
    pub fn of(device: &Device) -> Result<Self, ConvError> {
        Ok(match device {
            Device::Cpu(cpu) => Self::Cpu(cpu.clone()),
            Device::Cuda(cuda) => Self::Cudnn(Cudnn::of(cuda)?),
        })
    }

    /// Every algorithm that applies to `micro_batch` samples of `kernel`, the one that applies to nearly everything first.
    ///
    /// # Errors
    /// The kernel is no convolution, or cuDNN fails.
    pub fn candidates(
        &self,
        kernel: &KernelId,
        micro_batch: u32,
    ) -> Result<Vec<Arc<dyn Convolver>>, ConvError> {
        self.all(kernel.op, super::geometry(&kernel.shape, micro_batch), kernel.math, &|_| true)
    }

    /// The algorithm called `name` for `op` on `geometry`.
    ///
    /// # Errors
    /// There is none that applies; or as for [`ConvBackend::candidates`].
    pub fn find(
        &self,
        op: ConvOp,
        geometry: ConvGeometry,
        name: &str,
    ) -> Result<Arc<dyn Convolver>, ConvError> {
        let found = self.all(op, geometry, Math::Tf32, &|other| other == name)?.pop();
        found.ok_or_else(|| ConvError::Unknown {
            op,
            algorithm: name.to_owned(),
            geometry: Box::new(geometry),
        })
    }

    /// The algorithms with a `wanted` name that apply.
    fn all(
        &self,
        op: ConvOp,
        geometry: ConvGeometry,
        math: Math,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<Arc<dyn Convolver>>, ConvError> {
        let geometry = geometry.validate()?;
        match self {
            Self::Cpu(cpu) => Ok(cpu::convolvers(cpu, op, geometry, wanted)),
            Self::Cudnn(cudnn) => cudnn.convolvers(op, geometry, math, wanted),
        }
    }
}
