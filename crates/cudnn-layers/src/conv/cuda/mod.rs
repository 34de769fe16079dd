//! Convolution on NVIDIA GPUs, through cuDNN's engines and cuBLAS.

mod convolver;
mod engines;
mod gemm;
#[cfg(test)]
mod tests;

use super::{ConvError, ConvOp, Convolver, Result};
use crate::cudnn;
use crate::space_to_depth::blocks;
use engines::{Search, is_harmful, refused};
use gemm::GemmConvolver;
use planner::Math;
use std::sync::Arc;
use tensor::cuda::Cuda;
use tensor::{AxisOrder, ConvGeometry, Format};

/// The algorithms that apply, as cuDNN does not have every geometry, and that `math` admits: TF32 admits single precision
/// too, and to BF16 it makes no difference. With a `name`, only the one of that name. Feature maps are of this format,
/// in the memory of `cuda`.
pub(super) fn convolvers(
    cuda: &Cuda,
    (op, geometry, format): (ConvOp, ConvGeometry, Format),
    math: Math,
    name: Option<&str>,
) -> Result<Vec<Arc<dyn Convolver>>> {
    // Fails here where cuDNN cannot be started, which is no failure of an algorithm.
    cudnn::with(cuda, |_| Ok(()))?;
    let mut found = GemmConvolver::all(cuda, (op, geometry, format), math, name);
    if is_harmful(op, &geometry) {
        return Ok(found);
    }
    let failed =
        |source| ConvError::Algorithm { algorithm: "engines".to_owned(), samples: geometry.n, source };
    // A strided convolution of few channels runs without stride, too, over blocks of pixels that it makes of x.
    let makes_blocks = op != ConvOp::BackwardData && format.layout == AxisOrder::Nchw;
    let dense = blocks(&geometry, format).filter(|_| makes_blocks).map(|g| g.dense(1));
    for of_engine in [geometry.in_memory()].into_iter().chain(dense) {
        let search = Search::new(cuda, op, [geometry, of_engine], format);
        let Some(search) = refused(search).map_err(failed)? else { continue };
        let engines = match name {
            None => search.all(math),
            Some(name) => {
                let engine = search.task.named(name);
                engine.map_or(Ok(None), |engine| search.set_up(&engine)).map(Vec::from_iter)
            }
        };
        let engines = engines.map_err(failed)?.into_iter();
        found.extend(engines.map(|engine| Arc::new(engine) as Arc<dyn Convolver>));
    }
    Ok(found)
}
