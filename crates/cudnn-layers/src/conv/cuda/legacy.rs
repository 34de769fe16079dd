//! The algorithms of cuDNN's legacy API: those that transform tiles and frequencies are nowhere else.

use super::kind::Kind;
use crate::{
    conv::{ConvError, ConvOp, Convolver, Facts},
    cudnn::{ConvDescriptors, Cudnn, CudnnError, LegacyAlgorithm},
};
use cudarc::cudnn::sys::{
    cudnnConvolutionBwdDataAlgo_t as Data, cudnnConvolutionBwdFilterAlgo_t as Filter,
    cudnnConvolutionFwdAlgo_t as Fwd,
};
use planner::{Bytes, Math};
use tensor::{ConvGeometry, Format, Out, View, ViewMut};

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
    facts: Facts,
    cudnn: Cudnn,
    raw: LegacyAlgorithm,
    descriptors: ConvDescriptors,
}

impl LegacyConvolver {
    pub(super) fn new(
        cudnn: &Cudnn,
        algorithm: &'static CudnnAlgorithm,
        g: &ConvGeometry,
    ) -> Result<Self, CudnnError> {
        let math = if algorithm.kind == Kind::Tf32 { Math::Tf32 } else { Math::Fp32 };
        let descriptors = ConvDescriptors::new(g, math)?;
        let facts = Facts {
            name: algorithm.name.to_owned(),
            geometry: *g,
            workspace: Bytes(cudnn.workspace_bytes(algorithm.raw, &descriptors)? as u64),
            prepared: Bytes(0),
            max_error: algorithm.kind.max_error(g, Format::F32),
            deterministic: algorithm.kind != Kind::Atomic,
        };
        Ok(Self { facts, cudnn: cudnn.clone(), raw: algorithm.raw, descriptors })
    }
}

impl Convolver for LegacyConvolver {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn run(&self, operands: [View<'_>; 2], out: Out<'_>, workspace: ViewMut<'_>) -> Result<(), ConvError> {
        let Self { facts, cudnn, raw, descriptors } = self;
        assert!(workspace.byte_len() as u64 >= facts.workspace.0, "the workspace is smaller than planned");
        let launched = cudnn.convolve(*raw, descriptors, operands, out, workspace);
        launched.map_err(|source| ConvError::of_algorithm(&facts.name, facts.geometry.n, source))
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
