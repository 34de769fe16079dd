//! Convolution on NVIDIA GPUs, through cuDNN's legacy API and through its engines.

mod depth;
mod engines;
mod filter;
mod legacy;
#[cfg(test)]
mod tests;

use super::{ConvError, ConvOp, Convolver};
use crate::{
    cudnn::{Cudnn, CudnnError},
    space_to_depth::with_depth,
};
use depth::DepthConvolver;
use filter::FilterConverter;
use legacy::LegacyConvolver;
use planner::Math;
use std::sync::Arc;
use tensor::{AxisOrder, ConvGeometry, ElementType, Format, cuda::Cuda};

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
    /// name. Feature maps are of `format`; without the device, which a borrowed handle lacks, of [`Format::F32`].
    ///
    /// # Errors
    /// cuDNN fails.
    pub(crate) fn convolvers(
        &self,
        op: ConvOp,
        geometry: ConvGeometry,
        (format, cuda): (Format, Option<&Cuda>),
        math: Math,
        name: Option<&str>,
    ) -> Result<Vec<Arc<dyn Convolver>>, ConvError> {
        let tf32 = math == Math::Tf32 && format.dtype == ElementType::F32;
        let mut applying: Vec<Arc<dyn Convolver>> = Vec::new();
        for algorithm in legacy::all(op) {
            if name.is_some_and(|name| name != algorithm.name) || algorithm.kind == Kind::Tf32 && !tf32 {
                continue;
            }
            match LegacyConvolver::new(self, algorithm, &geometry, format) {
                Ok(convolver) => applying.push(Arc::new(convolver)),
                Err(error) if error.is_unsupported() => {}
                Err(source) => return Err(failed(algorithm.name, &geometry, source)),
            }
        }
        let Some(cuda) = cuda else { return Ok(applying) };
        let failed = |source| failed("engines", &geometry, source);
        let engines = engines::convolvers(self, (op, geometry, format), math, name).map_err(failed)?;
        applying.extend(engines.into_iter().map(|engine| Arc::new(engine) as Arc<dyn Convolver>));
        if format != Format::F32 {
            let wrap = |inner| Arc::new(FilterConverter::new(inner, cuda, op, format)) as Arc<dyn Convolver>;
            applying = applying.into_iter().map(wrap).collect();
        }
        applying.extend(self.with_depth((op, geometry, format), cuda, math, name).map_err(failed)?);
        Ok(applying)
    }

    /// The engines for blocks of pixels as channels, where that may pay; or the one of them called `name`.
    fn with_depth(
        &self,
        (op, geometry, format): (ConvOp, ConvGeometry, Format),
        cuda: &Cuda,
        math: Math,
        name: Option<&str>,
    ) -> Result<Vec<Arc<dyn Convolver>>, CudnnError> {
        let pays = op != ConvOp::BackwardData && format.layout == AxisOrder::Nhwc;
        let name = name.map(|name| name.strip_prefix(depth::PREFIX));
        let (Some(deep), true) = (with_depth(&geometry), pays && name != Some(None)) else {
            return Ok(Vec::new());
        };
        let engines = engines::convolvers(self, (op, deep, format), math, name.flatten())?.into_iter();
        let with_depth = |engine| DepthConvolver::new(engine, cuda, (op, geometry, format));
        Ok(engines.map(|engine| Arc::new(with_depth(engine)) as Arc<dyn Convolver>).collect())
    }
}

fn failed(algorithm: &str, g: &ConvGeometry, source: CudnnError) -> ConvError {
    ConvError::Algorithm { algorithm: algorithm.to_owned(), samples: g.n, source }
}
