//! Convolution on NVIDIA GPUs, through cuDNN's engines and cuBLAS.

mod convolver;
mod engines;
mod gemm;
mod kind;
#[cfg(test)]
mod tests;

use super::{ConvError, ConvOp, Convolver, CudnnError};
use crate::cudnn;
use crate::space_to_depth::blocks;
use convolver::EngineConvolver;
use engines::{Search, refused};
use gemm::GemmConvolver;
use planner::Math;
use std::sync::Arc;
use tensor::{AxisOrder, ConvGeometry, Format, cuda::Cuda};

/// The algorithms that a kernel with the arithmetic `math` may use (where TF32 is allowed, single precision is too; to
/// BF16 it makes no difference) and that apply: cuDNN has a CUDA kernel for some geometries only. With a `name`, the one
/// of that name. Feature maps are of `format`, in the memory of `cuda`.
pub(super) fn convolvers(
    cuda: &Cuda,
    subject: (ConvOp, ConvGeometry, Format),
    math: Math,
    name: Option<&str>,
) -> Result<Vec<Arc<dyn Convolver>>, ConvError> {
    // Where cuDNN cannot be started, that is no failure of an algorithm.
    cudnn::with(cuda, |_| Ok(()))?;
    let mut applying = GemmConvolver::all(cuda, subject, math, name);
    let (algorithm, samples) = ("engines".to_owned(), subject.1.n);
    let engines = engine_convolvers(cuda, subject, math, name);
    let engines = engines.map_err(|source| ConvError::Algorithm { algorithm, samples, source })?;
    applying.extend(engines.into_iter().map(|engine| Arc::new(engine) as Arc<dyn Convolver>));
    Ok(applying)
}

/// The engines among them.
fn engine_convolvers(
    cuda: &Cuda,
    (op, geometry, format): (ConvOp, ConvGeometry, Format),
    math: Math,
    name: Option<&str>,
) -> Result<Vec<EngineConvolver>, CudnnError> {
    let mut found = Vec::new();
    let reads_x = op != ConvOp::BackwardData && format.layout == AxisOrder::Nchw;
    let dense = blocks(&geometry, format).filter(|_| reads_x).map(|g| g.dense(1));
    for of_engine in [geometry.in_memory()].into_iter().chain(dense) {
        let search = Search::new(cuda, op, [geometry, of_engine], format);
        let Some(search) = refused(search)? else { continue };
        match name {
            None => found.append(&mut search.all(math)?),
            Some(name) => {
                let engine = search.task.named(name);
                found.extend(engine.map(|engine| search.set_up(&engine)).transpose()?.flatten());
            }
        }
    }
    Ok(found)
}
