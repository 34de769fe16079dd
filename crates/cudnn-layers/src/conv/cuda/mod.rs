//! Convolution on NVIDIA GPUs, through cuDNN's legacy API.

#[cfg(test)]
mod tests;

use super::operands::filter;
use super::{ConvError, ConvOp, Convolver};
use crate::{
    copy::convert,
    cudnn::{ConvDescriptors, Cudnn, CudnnError, LegacyAlgorithm},
};
use cudarc::cudnn::sys::{
    cudnnConvolutionBwdDataAlgo_t as Data, cudnnConvolutionBwdFilterAlgo_t as Filter,
    cudnnConvolutionFwdAlgo_t as Fwd,
};
use planner::{Bytes, Math};
use std::sync::Arc;
use tensor::{
    Accumulate, ConvGeometry, Device, ElementType, Format, Space, TensorType, View, ViewMut, cuda::Cuda,
};

/// An algorithm of cuDNN with its arithmetic: the same algorithm in TF32 needs another time, another workspace and has
/// another error, so it is another algorithm to a planner.
#[derive(Debug)]
struct CudnnAlgorithm {
    /// cuDNN's name without its prefix; with `_TF32` where the multiplicands are rounded to TF32.
    name: &'static str,
    raw: LegacyAlgorithm,
    kind: Kind,
}

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

macro_rules! algorithms {
    ($raw:ident $family:ident: $($name:literal $algorithm:ident $kind:ident,)*) => {
        &[$(CudnnAlgorithm {
            name: $name,
            raw: LegacyAlgorithm::$raw($family::$algorithm),
            kind: Kind::$kind,
        }),*]
    };
}

// In TF32 there are those only whose results change when cuDNN may use it: the others run the same code either way
// (bit-equal results and equal workspaces on an H200).
const FORWARD: &[CudnnAlgorithm] = algorithms! { Forward Fwd:
    "IMPLICIT_GEMM" CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM Direct,
    "IMPLICIT_PRECOMP_GEMM" CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM Direct,
    "GEMM" CUDNN_CONVOLUTION_FWD_ALGO_GEMM Direct,
    "FFT" CUDNN_CONVOLUTION_FWD_ALGO_FFT Fft,
    "FFT_TILING" CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING Fft,
    "WINOGRAD" CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD Winograd,
    "WINOGRAD_NONFUSED" CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED Winograd,
    "IMPLICIT_PRECOMP_GEMM_TF32" CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM Tf32,
};

const BACKWARD_DATA: &[CudnnAlgorithm] = algorithms! { BackwardData Data:
    "ALGO_0" CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 Atomic,
    "ALGO_1" CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 Direct,
    "FFT" CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT Fft,
    "FFT_TILING" CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING Fft,
    "WINOGRAD" CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD Winograd,
    "WINOGRAD_NONFUSED" CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED Winograd,
    "ALGO_1_TF32" CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 Tf32,
};

const BACKWARD_FILTER: &[CudnnAlgorithm] = algorithms! { BackwardFilter Filter:
    "ALGO_0" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 Atomic,
    "ALGO_1" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 Direct,
    "ALGO_3" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3 Atomic,
    "FFT" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT Fft,
    "FFT_TILING" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING Fft,
    "WINOGRAD" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD Winograd,
    "WINOGRAD_NONFUSED" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED Winograd,
    "ALGO_1_TF32" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 Tf32,
};

impl Cudnn {
    /// The algorithms with a `wanted` name that a kernel with the arithmetic `math` may use (where TF32 is allowed, single
    /// precision is too; to BF16 it makes no difference) and that apply: cuDNN has a CUDA kernel for some geometries only.
    /// Feature maps are of `format`, with the device where that is not [`Format::F32`].
    ///
    /// # Errors
    /// cuDNN fails.
    pub(crate) fn convolvers(
        &self,
        op: ConvOp,
        geometry: ConvGeometry,
        (format, cuda): (Format, Option<&Cuda>),
        math: Math,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<Arc<dyn Convolver>>, ConvError> {
        let all = match op {
            ConvOp::Forward => FORWARD,
            ConvOp::BackwardData => BACKWARD_DATA,
            ConvOp::BackwardFilter => BACKWARD_FILTER,
        };
        let mut applying: Vec<Arc<dyn Convolver>> = Vec::new();
        let tf32 = math == Math::Tf32 && format.dtype == ElementType::F32;
        let allowed = |one: &&CudnnAlgorithm| wanted(one.name) && (one.kind != Kind::Tf32 || tf32);
        for algorithm in all.iter().filter(allowed) {
            match LegacyConvolver::new(self, algorithm, &geometry, (format, cuda)) {
                Ok(convolver) => applying.push(Arc::new(convolver)),
                Err(error) if error.is_unsupported() => {}
                Err(source) => return Err(failed(algorithm, &geometry, source)),
            }
        }
        Ok(applying)
    }
}

/// An algorithm with a handle to run it on, and descriptors of one geometry.
#[derive(Debug)]
struct LegacyConvolver {
    cudnn: Cudnn,
    algorithm: &'static CudnnAlgorithm,
    descriptors: ConvDescriptors,
    /// Bytes that cuDNN works in.
    workspace: usize,
    /// Where the filter has to be converted: what does that, and the bytes of the workspace, at its beginning, that the
    /// converted filter, or its gradient, takes.
    converter: Option<(Device, usize)>,
}

impl LegacyConvolver {
    fn new(
        cudnn: &Cudnn,
        algorithm: &'static CudnnAlgorithm,
        g: &ConvGeometry,
        (format, cuda): (Format, Option<&Cuda>),
    ) -> Result<Self, CudnnError> {
        let math = if algorithm.kind == Kind::Tf32 { Math::Tf32 } else { Math::Fp32 };
        let descriptors = ConvDescriptors::new(g, format, math)?;
        let workspace = cudnn.workspace_bytes(algorithm.raw, &descriptors)?;
        let converted = Space::all_of([TensorType::new(&filter(g), format).space(), Space::aligned(0)]);
        let converter = cuda.map(|cuda| (Device::Cuda(cuda.clone()), converted.bytes()));
        Ok(Self { cudnn: cudnn.clone(), algorithm, descriptors, workspace, converter })
    }
}

impl Convolver for LegacyConvolver {
    fn name(&self) -> &str {
        self.algorithm.name
    }

    fn geometry(&self) -> &ConvGeometry {
        &self.descriptors.geometry
    }

    fn workspace(&self) -> Bytes {
        let converted = self.converter.as_ref().map_or(0, |(_, bytes)| *bytes);
        Bytes((converted + self.workspace) as u64)
    }

    /// Numbers of BF16 are off by 2e-3 of themselves, operands and results. The rest was measured on small random convolutions. The tiles that cuDNN takes for Winograd with filters larger than 3x3 cost
    /// three digits, more than TF32 does.
    fn max_error(&self) -> f32 {
        match self.algorithm.kind {
            Kind::Winograd if self.descriptors.format.dtype == ElementType::Bf16 => 2e-2,
            _ if self.descriptors.format.dtype == ElementType::Bf16 => 4e-3,
            Kind::Direct | Kind::Atomic | Kind::Fft => 1e-6,
            Kind::Winograd if self.geometry().r.max(self.geometry().s) > 3 => 2e-3,
            Kind::Winograd => 1e-5,
            Kind::Tf32 => 5e-4,
        }
    }

    fn is_deterministic(&self) -> bool {
        self.algorithm.kind != Kind::Atomic
    }

    fn run(
        &self,
        [a, b]: [View<'_>; 2],
        out: ViewMut<'_>,
        accumulate: Accumulate,
        mut workspace: ViewMut<'_>,
    ) -> Result<(), ConvError> {
        assert!(workspace.byte_len() as u64 >= self.workspace().0, "the workspace is smaller than planned");
        let Self { algorithm, descriptors, .. } = self;
        let Some((device, bytes)) = &self.converter else {
            let launched =
                self.cudnn.convolve(algorithm.raw, descriptors, [a, b], out, accumulate, workspace);
            return launched.map_err(|source| failed(algorithm, self.geometry(), source));
        };
        let (g, format) = (self.geometry(), descriptors.format);
        let mut converted = workspace.take(Format::U8, *bytes).take(format, g.w_len());
        let convolve = |operands, out, accumulate| {
            let launched =
                self.cudnn.convolve(algorithm.raw, descriptors, operands, out, accumulate, workspace);
            launched.map_err(|source| failed(algorithm, g, source))
        };
        if algorithm.raw.op() == ConvOp::BackwardFilter {
            convolve([a, b], converted.reborrow(), Accumulate::Replace)?;
            convert(device, &filter(g), converted.as_view(), out, accumulate);
            return Ok(());
        }
        convert(device, &filter(g), b, converted.reborrow(), Accumulate::Replace);
        convolve([a, converted.as_view()], out, accumulate)
    }
}

fn failed(algorithm: &CudnnAlgorithm, g: &ConvGeometry, source: CudnnError) -> ConvError {
    ConvError::Algorithm { algorithm: algorithm.name, samples: g.n, source }
}
