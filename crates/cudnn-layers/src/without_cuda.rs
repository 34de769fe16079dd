//! What stands for cuBLAS and cuDNN in a build without the feature `cuda`, where nothing here ever runs.

use crate::conv::{ConvOp, Convolver, Result};
use planner::Math;
use std::sync::Arc;
use tensor::{ConvGeometry, Format, Out, View, cuda::Cuda};

fn none() -> ! {
    unreachable!("a build without CUDA opens no GPU")
}

pub(crate) fn product(_: &Cuda, _: bool, _: [usize; 3], _: [(View<'_>, bool); 2], _: Out<'_>) {
    none()
}

pub(crate) fn convolvers(
    _: &Cuda,
    _: (ConvOp, ConvGeometry, Format),
    _: Math,
    _: Option<&str>,
) -> Result<Vec<Arc<dyn Convolver>>> {
    none()
}

/// As in a build with CUDA.
pub fn versions(_: &Cuda) -> String {
    none()
}
