//! What stands for cuBLAS and cuDNN in a build without the feature `cuda`, where no GPU can be opened and nothing here ever
//! runs.

use crate::{
    conv::{ConvError, ConvOp, Convolver},
    cudnn::CudnnError,
};
use planner::Math;
use std::sync::Arc;
use tensor::{Accumulate, ConvGeometry, View, ViewMut, cuda::Cuda};

/// As in a build with CUDA.
pub(crate) struct Factor<'a> {
    pub(crate) view: View<'a>,
    pub(crate) transposed: bool,
}

pub(crate) fn product(
    cuda: &Cuda,
    _: [usize; 3],
    _: Factor<'_>,
    _: Factor<'_>,
    _: ViewMut<'_>,
    _: Accumulate,
) {
    match *cuda {}
}

/// As in a build with CUDA.
#[derive(Clone, Debug)]
pub enum Cudnn {}

#[allow(missing_docs)]
impl Cudnn {
    pub fn of(cuda: &Cuda) -> Result<Self, CudnnError> {
        match *cuda {}
    }

    pub(crate) fn convolvers(
        &self,
        _: ConvOp,
        _: ConvGeometry,
        _: Math,
        _: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<Arc<dyn Convolver>>, ConvError> {
        match *self {}
    }
}

/// As in a build with CUDA.
pub fn versions(cuda: &Cuda) -> String {
    match *cuda {}
}
