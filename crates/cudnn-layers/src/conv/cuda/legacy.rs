//! The algorithms of cuDNN's legacy API: those that transform tiles and frequencies are nowhere else.

use super::kind::Kind;
use crate::{
    conv::{ConvError, ConvOp, Convolver},
    cudnn::{ConvDescriptors, Cudnn, CudnnError, LegacyAlgorithm},
};
use cudarc::cudnn::sys::{
    cudnnConvolutionBwdDataAlgo_t as Data, cudnnConvolutionBwdFilterAlgo_t as Filter,
    cudnnConvolutionFwdAlgo_t as Fwd,
};
use planner::{Bytes, Math};
use tensor::{Accumulate, ConvGeometry, Format, View, ViewMut};

/// An algorithm of cuDNN with its arithmetic: the same algorithm in TF32 needs another time, another workspace and has
/// another error, so it is another algorithm to a planner.
#[derive(Debug)]
pub(super) struct CudnnAlgorithm {
    /// cuDNN's name without its prefix; with `_TF32` where the multiplicands are rounded to TF32.
    pub(super) name: &'static str,
    raw: LegacyAlgorithm,
    pub(super) kind: Kind,
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
pub(super) const FORWARD: &[CudnnAlgorithm] = algorithms! { Forward Fwd:
    "IMPLICIT_GEMM" CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM Direct,
    "IMPLICIT_PRECOMP_GEMM" CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM Direct,
    "GEMM" CUDNN_CONVOLUTION_FWD_ALGO_GEMM Direct,
    "FFT" CUDNN_CONVOLUTION_FWD_ALGO_FFT Fft,
    "FFT_TILING" CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING Fft,
    "WINOGRAD" CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD Winograd,
    "WINOGRAD_NONFUSED" CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED Winograd,
    "IMPLICIT_PRECOMP_GEMM_TF32" CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM Tf32,
};

pub(super) const BACKWARD_DATA: &[CudnnAlgorithm] = algorithms! { BackwardData Data:
    "ALGO_0" CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 Atomic,
    "ALGO_1" CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 Direct,
    "FFT" CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT Fft,
    "FFT_TILING" CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING Fft,
    "WINOGRAD" CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD Winograd,
    "WINOGRAD_NONFUSED" CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED Winograd,
    "ALGO_1_TF32" CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 Tf32,
};

pub(super) const BACKWARD_FILTER: &[CudnnAlgorithm] = algorithms! { BackwardFilter Filter:
    "ALGO_0" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 Atomic,
    "ALGO_1" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 Direct,
    "ALGO_3" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3 Atomic,
    "FFT" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT Fft,
    "FFT_TILING" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING Fft,
    "WINOGRAD" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD Winograd,
    "WINOGRAD_NONFUSED" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED Winograd,
    "ALGO_1_TF32" CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 Tf32,
};

/// An algorithm with a handle to run it on, and descriptors of one geometry.
#[derive(Debug)]
pub(super) struct LegacyConvolver {
    cudnn: Cudnn,
    algorithm: &'static CudnnAlgorithm,
    descriptors: ConvDescriptors,
    workspace: usize,
}

impl LegacyConvolver {
    pub(super) fn new(
        cudnn: &Cudnn,
        algorithm: &'static CudnnAlgorithm,
        g: &ConvGeometry,
    ) -> Result<Self, CudnnError> {
        let math = if algorithm.kind == Kind::Tf32 { Math::Tf32 } else { Math::Fp32 };
        let descriptors = ConvDescriptors::new(g, math)?;
        let workspace = cudnn.workspace_bytes(algorithm.raw, &descriptors)?;
        Ok(Self { cudnn: cudnn.clone(), algorithm, descriptors, workspace })
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
        Bytes(self.workspace as u64)
    }

    fn max_error(&self) -> f32 {
        self.algorithm.kind.max_error(self.geometry(), Format::F32)
    }

    fn is_deterministic(&self) -> bool {
        self.algorithm.kind != Kind::Atomic
    }

    fn run(
        &self,
        operands: [View<'_>; 2],
        out: ViewMut<'_>,
        accumulate: Accumulate,
        workspace: ViewMut<'_>,
    ) -> Result<(), ConvError> {
        assert!(workspace.byte_len() >= self.workspace, "the workspace is smaller than planned");
        let Self { cudnn, algorithm, descriptors, .. } = self;
        let launched = cudnn.convolve(algorithm.raw, descriptors, operands, out, accumulate, workspace);
        launched.map_err(|source| ConvError::of_algorithm(algorithm.name, self.geometry().n, source))
    }
}

/// All algorithms for `op`.
pub(super) fn all(op: ConvOp) -> &'static [CudnnAlgorithm] {
    match op {
        ConvOp::Forward => FORWARD,
        ConvOp::BackwardData => BACKWARD_DATA,
        ConvOp::BackwardFilter => BACKWARD_FILTER,
    }
}
