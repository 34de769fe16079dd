//! The algorithms of cuDNN's legacy API.

use super::super::ConvOp;
use crate::raw::RawAlgorithm;
use cudarc::cudnn::sys::{
    cudnnConvolutionBwdDataAlgo_t as Data, cudnnConvolutionBwdFilterAlgo_t as Filter,
    cudnnConvolutionFwdAlgo_t as Fwd,
};
use planner::Math;

/// An algorithm of cuDNN with the arithmetic it runs in: the same algorithm in TF32 needs another time, another workspace
/// and has another error, so it is another algorithm to a planner.
#[derive(Debug)]
pub struct CudaAlgorithm {
    name: &'static str,
    pub(super) raw: RawAlgorithm,
    math: Math,
    max_error: f32,
    deterministic: bool,
}

impl CudaAlgorithm {
    /// cuDNN's name without its prefix, such as `FFT_TILING` or `ALGO_1`; with `_TF32` where the multiplicands are rounded
    /// to TF32.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The operation.
    pub fn op(&self) -> ConvOp {
        self.raw.op()
    }

    /// The arithmetic.
    pub fn math(&self) -> Math {
        self.math
    }

    /// Typical largest error over the largest output, against exact arithmetic: the accuracy class.
    pub fn max_error(&self) -> f32 {
        self.max_error
    }

    /// Whether equal operands always give bit-equal results, according to cuDNN's documentation. The others add up with
    /// atomic operations, in the order in which thread blocks happen to finish.
    pub fn deterministic(&self) -> bool {
        self.deterministic
    }
}

/// The algorithms of `op` that a kernel with the arithmetic `math` may use: where TF32 is allowed, single precision is too.
pub fn algorithms(op: ConvOp, math: Math) -> impl Iterator<Item = &'static CudaAlgorithm> {
    all(op).iter().filter(move |algorithm| algorithm.math == Math::Fp32 || math == Math::Tf32)
}

/// The algorithm of `op` with this name.
pub fn find(op: ConvOp, name: &str) -> Option<&'static CudaAlgorithm> {
    all(op).iter().find(|algorithm| algorithm.name == name)
}

fn all(op: ConvOp) -> &'static [CudaAlgorithm] {
    match op {
        ConvOp::Forward => FORWARD,
        ConvOp::BackwardData => BACKWARD_DATA,
        ConvOp::BackwardFilter => BACKWARD_FILTER,
    }
}

/// Accuracy classes, measured on layers of AlexNet and ResNet.
const DIRECT: f32 = 1e-6;
const FFT: f32 = 1e-6;
const WINOGRAD: f32 = 1e-5;
const TF32: f32 = 5e-4;

const fn fp32(name: &'static str, raw: RawAlgorithm, max_error: f32) -> CudaAlgorithm {
    CudaAlgorithm { name, raw, math: Math::Fp32, max_error, deterministic: is_deterministic(raw) }
}

const fn tf32(name: &'static str, raw: RawAlgorithm) -> CudaAlgorithm {
    CudaAlgorithm { name, raw, math: Math::Tf32, max_error: TF32, deterministic: is_deterministic(raw) }
}

const fn is_deterministic(raw: RawAlgorithm) -> bool {
    !matches!(
        raw,
        RawAlgorithm::BackwardData(Data::CUDNN_CONVOLUTION_BWD_DATA_ALGO_0)
            | RawAlgorithm::BackwardFilter(
                Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 | Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3
            )
    )
}

const FORWARD: &[CudaAlgorithm] = {
    use Fwd::*;
    use RawAlgorithm::Forward as Raw;
    &[
        fp32("IMPLICIT_GEMM", Raw(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM), DIRECT),
        fp32("IMPLICIT_PRECOMP_GEMM", Raw(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM), DIRECT),
        fp32("GEMM", Raw(CUDNN_CONVOLUTION_FWD_ALGO_GEMM), DIRECT),
        fp32("FFT", Raw(CUDNN_CONVOLUTION_FWD_ALGO_FFT), FFT),
        fp32("FFT_TILING", Raw(CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING), FFT),
        fp32("WINOGRAD", Raw(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD), WINOGRAD),
        fp32("WINOGRAD_NONFUSED", Raw(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED), WINOGRAD),
        tf32("IMPLICIT_GEMM_TF32", Raw(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM)),
        tf32("IMPLICIT_PRECOMP_GEMM_TF32", Raw(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)),
        tf32("GEMM_TF32", Raw(CUDNN_CONVOLUTION_FWD_ALGO_GEMM)),
        tf32("FFT_TF32", Raw(CUDNN_CONVOLUTION_FWD_ALGO_FFT)),
        tf32("FFT_TILING_TF32", Raw(CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING)),
        tf32("WINOGRAD_TF32", Raw(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD)),
        tf32("WINOGRAD_NONFUSED_TF32", Raw(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED)),
    ]
};

const BACKWARD_DATA: &[CudaAlgorithm] = {
    use Data::*;
    use RawAlgorithm::BackwardData as Raw;
    &[
        fp32("ALGO_0", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0), DIRECT),
        fp32("ALGO_1", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1), DIRECT),
        fp32("FFT", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT), FFT),
        fp32("FFT_TILING", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING), FFT),
        fp32("WINOGRAD", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD), WINOGRAD),
        fp32("WINOGRAD_NONFUSED", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED), WINOGRAD),
        tf32("ALGO_0_TF32", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0)),
        tf32("ALGO_1_TF32", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1)),
        tf32("FFT_TF32", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT)),
        tf32("FFT_TILING_TF32", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING)),
        tf32("WINOGRAD_TF32", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD)),
        tf32("WINOGRAD_NONFUSED_TF32", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED)),
    ]
};

const BACKWARD_FILTER: &[CudaAlgorithm] = {
    use Filter::*;
    use RawAlgorithm::BackwardFilter as Raw;
    &[
        fp32("ALGO_0", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0), DIRECT),
        fp32("ALGO_1", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1), DIRECT),
        fp32("ALGO_3", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3), DIRECT),
        fp32("FFT", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT), FFT),
        fp32("FFT_TILING", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING), FFT),
        fp32("WINOGRAD", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD), WINOGRAD),
        fp32("WINOGRAD_NONFUSED", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED), WINOGRAD),
        tf32("ALGO_0_TF32", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0)),
        tf32("ALGO_1_TF32", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1)),
        tf32("ALGO_3_TF32", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3)),
        tf32("FFT_TF32", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT)),
        tf32("FFT_TILING_TF32", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING)),
        tf32("WINOGRAD_TF32", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD)),
        tf32("WINOGRAD_NONFUSED_TF32", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED)),
    ]
};
