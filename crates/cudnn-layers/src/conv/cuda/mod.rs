//! Convolution on NVIDIA GPUs, through cuDNN's legacy API and through its engines.

mod convolver;
mod engines;
mod legacy;
#[cfg(test)]
mod tests;

use super::{ConvError, ConvOp, Convolver};
use crate::{
    cudnn::{Cudnn, CudnnError},
    space_to_depth::with_depth,
};
use convolver::{DEPTH, EngineConvolver};
use engines::{Search, refused};
use legacy::{CudnnAlgorithm, LegacyConvolver};
use planner::Math;
use std::sync::Arc;
use tensor::{AxisOrder, ConvGeometry, Device, ElementType, Format, cuda::Cuda};

/// What decides the rounding error of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Sums of products, as the definition says.
    Direct,
    /// The same, added up by atomic operations in the order in which thread blocks happen to finish: not deterministic,
    /// according to cuDNN's documentation.
    Atomic,
    /// Sums in the frequency domain.
    Fft,
    /// Sums of transformed tiles: the larger the tile, the more the transform amplifies errors.
    Winograd,
    /// Sums of products whose multiplicands have 10 bits.
    Tf32,
}

impl Kind {
    /// The typical largest error over the largest output. Numbers of BF16 are off by 2e-3 of themselves, operands and results.
    /// The rest was measured on small random convolutions. The tiles that cuDNN takes for Winograd with filters larger than
    /// 3x3 cost three digits, more than TF32 does.
    fn max_error(self, g: &ConvGeometry, format: Format) -> f32 {
        match self {
            Self::Winograd if format.dtype == ElementType::Bf16 => 2e-2,
            _ if format.dtype == ElementType::Bf16 => 4e-3,
            Self::Direct | Self::Atomic | Self::Fft => 1e-6,
            Self::Winograd if g.r.max(g.s) > 3 => 2e-3,
            Self::Winograd => 1e-5,
            Self::Tf32 => 5e-4,
        }
    }
}

impl Cudnn {
    /// The algorithms that a kernel with the arithmetic `math` may use (where TF32 is allowed, single precision is too; to BF16
    /// it makes no difference) and that apply: cuDNN has a CUDA kernel for some geometries only. With a `name`, the one of that
    /// name. Feature maps are of `format`, in the memory of `cuda`.
    ///
    /// # Errors
    /// cuDNN fails.
    pub(crate) fn convolvers(
        &self,
        cuda: &Cuda,
        (op, geometry, format): (ConvOp, ConvGeometry, Format),
        math: Math,
        name: Option<&str>,
    ) -> Result<Vec<Arc<dyn Convolver>>, ConvError> {
        let mut applying: Vec<Arc<dyn Convolver>> = Vec::new();
        let is_asked_for = |one: &&CudnnAlgorithm| match name {
            Some(name) => name == one.name,
            None => one.kind != Kind::Tf32 || math == Math::Tf32,
        };
        // In other formats the engines are as fast, and more.
        let of_legacy = if format == Format::F32 { legacy::all(op) } else { &[] };
        for algorithm in of_legacy.iter().filter(is_asked_for) {
            match LegacyConvolver::new(self, algorithm, &geometry) {
                Ok(convolver) => applying.push(Arc::new(convolver)),
                Err(error) if error.is_unsupported() => {}
                Err(source) => return Err(failed(algorithm.name, &geometry, source)),
            }
        }
        let engines = self.engine_convolvers(cuda, (op, geometry, format), math, name);
        let engines = engines.map_err(|source| failed("engines", &geometry, source))?;
        applying.extend(engines.into_iter().map(|engine| Arc::new(engine) as Arc<dyn Convolver>));
        Ok(applying)
    }

    /// The engines among them.
    fn engine_convolvers(
        &self,
        cuda: &Cuda,
        (op, geometry, format): (ConvOp, ConvGeometry, Format),
        math: Math,
        name: Option<&str>,
    ) -> Result<Vec<EngineConvolver>, CudnnError> {
        let (device, mut found) = (Device::Cuda(cuda.clone()), Vec::new());
        let may_be_deep = op != ConvOp::BackwardData && format.layout == AxisOrder::Nhwc;
        let deep = with_depth(&geometry).filter(|_| may_be_deep).map(|deep| (DEPTH, deep));
        for (prefix, of_engine) in [("", geometry)].into_iter().chain(deep) {
            let engine = name.map(|name| name.strip_prefix(prefix).and_then(|name| name.parse().ok()));
            if engine == Some(None) {
                continue;
            }
            let search = Search::new(self, &device, op, [geometry, of_engine], format);
            let Some(search) = refused(search)? else { continue };
            match engine.flatten() {
                Some(engine) => found.extend(search.set_up(&engine)?),
                None => found.append(&mut search.all(math)?),
            }
        }
        Ok(found)
    }
}

fn failed(algorithm: &str, g: &ConvGeometry, source: CudnnError) -> ConvError {
    ConvError::Algorithm { algorithm: algorithm.to_owned(), samples: g.n, source }
}
