//! The algorithms of cuDNN's legacy API.

use super::super::ConvOp;
use crate::cudnn::RawAlgorithm;
use cudarc::cudnn::sys::{
    cudnnConvolutionBwdDataAlgo_t as Data, cudnnConvolutionBwdFilterAlgo_t as Filter,
    cudnnConvolutionFwdAlgo_t as Fwd,
};
use planner::Math;
use tensor::ConvGeometry;

/// An algorithm of cuDNN with the arithmetic it runs in: the same algorithm in TF32 needs another time, another workspace
/// and has another error, so it is another algorithm to a planner.
#[derive(Debug)]
pub struct CudaAlgorithm {
    name: &'static str,
    pub(super) raw: RawAlgorithm,
    math: Math,
    accuracy: Accuracy,
    deterministic: bool,
}

/// What decides the rounding error of an algorithm.
#[derive(Clone, Copy, Debug)]
enum Accuracy {
    /// Sums of products, as the definition says.
    Direct,
    /// Sums in the frequency domain.
    Fft,
    /// Sums of transformed tiles: the larger the tile, the more the transform amplifies errors.
    Winograd,
    /// Sums of products whose multiplicands have 10 bits.
    Tf32,
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

    /// Typical largest error over the largest output on `geometry`, against exact arithmetic: the accuracy class. Measured
    /// on small random convolutions. The tiles that cuDNN takes for Winograd with filters larger than 3x3 cost three
    /// digits, more than TF32 does.
    pub fn max_error(&self, geometry: &ConvGeometry) -> f32 {
        match self.accuracy {
            Accuracy::Direct | Accuracy::Fft => 1e-6,
            Accuracy::Winograd if geometry.r.max(geometry.s) > 3 => 2e-3,
            Accuracy::Winograd => 1e-5,
            Accuracy::Tf32 => 5e-4,
        }
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

/// Every algorithm of `op`. In TF32 there are those only whose results change when cuDNN may use it: the others run the
/// same code either way (bit-equal results and equal workspaces on an H200).
fn all(op: ConvOp) -> &'static [CudaAlgorithm] {
    match op {
        ConvOp::Forward => FORWARD,
        ConvOp::BackwardData => BACKWARD_DATA,
        ConvOp::BackwardFilter => BACKWARD_FILTER,
    }
}

const fn fp32(name: &'static str, raw: RawAlgorithm, accuracy: Accuracy) -> CudaAlgorithm {
    CudaAlgorithm { name, raw, math: Math::Fp32, accuracy, deterministic: is_deterministic(raw) }
}

const fn tf32(name: &'static str, raw: RawAlgorithm) -> CudaAlgorithm {
    let accuracy = Accuracy::Tf32;
    CudaAlgorithm { name, raw, math: Math::Tf32, accuracy, deterministic: is_deterministic(raw) }
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
        fp32("IMPLICIT_GEMM", Raw(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM), Accuracy::Direct),
        fp32(
            "IMPLICIT_PRECOMP_GEMM",
            Raw(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM),
            Accuracy::Direct,
        ),
        fp32("GEMM", Raw(CUDNN_CONVOLUTION_FWD_ALGO_GEMM), Accuracy::Direct),
        fp32("FFT", Raw(CUDNN_CONVOLUTION_FWD_ALGO_FFT), Accuracy::Fft),
        fp32("FFT_TILING", Raw(CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING), Accuracy::Fft),
        fp32("WINOGRAD", Raw(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD), Accuracy::Winograd),
        fp32("WINOGRAD_NONFUSED", Raw(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED), Accuracy::Winograd),
        tf32("IMPLICIT_PRECOMP_GEMM_TF32", Raw(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)),
    ]
};

const BACKWARD_DATA: &[CudaAlgorithm] = {
    use Data::*;
    use RawAlgorithm::BackwardData as Raw;
    &[
        fp32("ALGO_0", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0), Accuracy::Direct),
        fp32("ALGO_1", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1), Accuracy::Direct),
        fp32("FFT", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT), Accuracy::Fft),
        fp32("FFT_TILING", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING), Accuracy::Fft),
        fp32("WINOGRAD", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD), Accuracy::Winograd),
        fp32("WINOGRAD_NONFUSED", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED), Accuracy::Winograd),
        tf32("ALGO_1_TF32", Raw(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1)),
    ]
};

const BACKWARD_FILTER: &[CudaAlgorithm] = {
    use Filter::*;
    use RawAlgorithm::BackwardFilter as Raw;
    &[
        fp32("ALGO_0", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0), Accuracy::Direct),
        fp32("ALGO_1", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1), Accuracy::Direct),
        fp32("ALGO_3", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3), Accuracy::Direct),
        fp32("FFT", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT), Accuracy::Fft),
        fp32("FFT_TILING", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING), Accuracy::Fft),
        fp32("WINOGRAD", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD), Accuracy::Winograd),
        fp32(
            "WINOGRAD_NONFUSED",
            Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED),
            Accuracy::Winograd,
        ),
        tf32("ALGO_1_TF32", Raw(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1)),
    ]
};
