//! Convolution on NVIDIA GPUs, through cuDNN: its algorithms, and how to measure them.

mod algorithm;
mod profile;
#[cfg(test)]
mod tests;
mod timing;

pub use algorithm::{CudaAlgorithm, algorithms, find};
pub use profile::CudaProfiler;

use super::ConvError;
use crate::cudnn::{ConvDescriptors, Cudnn};
use planner::Bytes;
use tensor::{Accumulate, ConvGeometry, Format, View, ViewMut};

/// One algorithm made ready for one geometry.
#[derive(Debug)]
pub struct Convolution {
    algorithm: &'static CudaAlgorithm,
    descriptors: ConvDescriptors,
    workspace: Bytes,
}

impl Convolution {
    /// `algorithm` for `geometry`, or `None` if it does not apply: cuDNN has a kernel for some geometries only.
    ///
    /// # Errors
    /// cuDNN fails, or the geometry is none.
    pub fn new(
        cudnn: &Cudnn,
        algorithm: &'static CudaAlgorithm,
        geometry: ConvGeometry,
    ) -> Result<Option<Self>, ConvError> {
        let geometry = geometry.validate()?;
        let made = ConvDescriptors::new(&geometry, Format::F32, algorithm.math()).and_then(|descriptors| {
            let bytes = cudnn.workspace_bytes(algorithm.raw, &descriptors)?;
            Ok(Self { algorithm, descriptors, workspace: Bytes(bytes as u64) })
        });
        match made {
            Ok(convolution) => Ok(Some(convolution)),
            Err(error) if error.is_unsupported() => Ok(None),
            Err(source) => {
                let (algorithm, samples) = (algorithm.name(), geometry.n);
                Err(ConvError::Algorithm { algorithm, samples, source })
            }
        }
    }

    /// The algorithm.
    pub fn algorithm(&self) -> &'static CudaAlgorithm {
        self.algorithm
    }

    /// What it computes.
    pub fn geometry(&self) -> &ConvGeometry {
        &self.descriptors.geometry
    }

    /// Workspace that it needs.
    pub fn workspace(&self) -> Bytes {
        self.workspace
    }

    /// Asks for the convolution and does not wait for it. Operands as in the table of [`super`]; all must be memory of the
    /// GPU that `cudnn` works on.
    ///
    /// # Errors
    /// cuDNN refuses. Work that fails later shows when the device is waited for.
    ///
    /// # Panics
    /// If an operand has another length than the geometry says, or the workspace is too small.
    pub fn run(
        &self,
        cudnn: &Cudnn,
        operands: [View<'_>; 2],
        out: ViewMut<'_>,
        accumulate: Accumulate,
        workspace: ViewMut<'_>,
    ) -> Result<(), ConvError> {
        assert!(workspace.byte_len() as u64 >= self.workspace.0, "the workspace is smaller than planned");
        let algorithm = self.algorithm;
        cudnn.convolve(algorithm.raw, &self.descriptors, operands, out, accumulate, workspace).map_err(
            |source| ConvError::Algorithm { algorithm: algorithm.name(), samples: self.geometry().n, source },
        )
    }
}
