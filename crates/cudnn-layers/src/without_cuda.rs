//! What stands for cuBLAS and cuDNN in a build without the feature `cuda`, where nothing here ever runs.

use crate::conv::{ConvError, ConvOp, Convolver};
use planner::Math;
use std::sync::Arc;
use tensor::{ConvGeometry, Format, Out, View, cuda::Cuda};

fn none() -> ! {
    unreachable!("a build without CUDA opens no GPU")
}

/// As in a build with CUDA.
#[allow(dead_code)]
pub(crate) struct Factor<'a> {
    pub(crate) view: View<'a>,
    pub(crate) transposed: bool,
}

pub(crate) fn product(_: &Cuda, _: bool, _: [usize; 3], _: Factor<'_>, _: Factor<'_>, _: Out<'_>) {
    none()
}

pub(crate) fn convolvers(
    _: &Cuda,
    _: (ConvOp, ConvGeometry, Format),
    _: Math,
    _: Option<&str>,
) -> Result<Vec<Arc<dyn Convolver>>, ConvError> {
    none()
}

/// As in a build with CUDA.
pub fn versions(_: &Cuda) -> String {
    none()
}
