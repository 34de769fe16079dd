//! How exact algorithms are.

use crate::cudnn::EngineFacts;
use tensor::{ConvGeometry, ElementType, Format};

/// What decides the rounding error of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sums of products, as the definition says.
    Direct,
    /// Sums in the frequency domain.
    Fft,
    /// Sums of transformed tiles: the larger the tile, the more the transform amplifies errors.
    Winograd,
    /// Sums of products whose multiplicands have 10 bits.
    Tf32,
}

impl Kind {
    /// That of an engine.
    pub(super) fn of(facts: &EngineFacts, format: Format) -> Self {
        if facts.says(EngineFacts::WINOGRAD) {
            Self::Winograd
        } else if facts.says(EngineFacts::TENSOR_CORES) && format.dtype == ElementType::F32 {
            Self::Tf32
        } else if facts.says(EngineFacts::FREQUENCIES) {
            Self::Fft
        } else {
            Self::Direct
        }
    }

    /// The typical largest error over the largest output. Numbers of BF16 are off by 2e-3 of themselves, operands and
    /// results. The rest was measured on small random convolutions. The tiles that cuDNN takes for Winograd with
    /// filters larger than 3x3 cost three digits, more than TF32 does.
    pub(super) fn max_error(self, g: &ConvGeometry, format: Format) -> f32 {
        match self {
            Self::Winograd if format.dtype == ElementType::Bf16 => 2e-2,
            _ if format.dtype == ElementType::Bf16 => 4e-3,
            Self::Direct | Self::Fft => 1e-6,
            Self::Winograd if g.r.max(g.s) > 3 => 2e-3,
            Self::Winograd => 1e-5,
            Self::Tf32 => 5e-4,
        }
    }
}
