//! Nets and solvers as the user wrote them: typed, checked, and still with the lines they came from.
//!
//! [`NetSpec`] holds the layers of a net file for every phase, [`NetSpec::for_state`] those of one phase;
//! [`SolverSpec`] holds what a solver file says. Field names, defaults and meanings are Caffe's. Fields that have no
//! effect here are collected as warnings, values that cannot work are errors; both name file, line and layer.

mod data;
mod elementwise;
mod filler;
mod kind;
mod layer;
mod learning_rate;
mod legacy;
mod loss;
mod net;
mod norm;
mod params;
mod predict;
mod solver;
mod state;
#[cfg(test)]
mod tests;
mod windows;

use std::path::{Path, PathBuf};

pub(crate) use kind::layer_types;
pub(crate) use solver::method_name;

// Parameters that are the operations' own types.
pub use cudnn_layers::update::{Larc, Method, Regularization};
pub use cudnn_layers::{eltwise::Combination, lrn::Region, softmax::Normalization};
pub use tensor::Rounding;

pub use data::{
    ColorJitter, DataParams, DummyDataParams, ImageDataParams, InputParams, Mean, TransformParams, of_top,
};
pub use elementwise::{
    ConcatParams, DropoutParams, EltwiseParams, EluParams, FlattenParams, PReluParams, PowerParams,
    ReluParams, ReshapeParams, SigmoidParams, SliceParams, TanHParams,
};
pub use filler::{Filler, FillerKind, VarianceNorm};
pub use kind::LayerKind;
pub use layer::{LayerSpec, ParamSpec};
pub use learning_rate::{LearningRate, LrPolicy, Rampup, Warmup};
pub use loss::{AccuracyParams, SoftmaxParams, SoftmaxWithLossParams};
pub use net::NetSpec;
pub use norm::{BatchNormParams, LrnParams, ScaleBias, ScaleParams};
pub use solver::{NetSource, SnapshotSpec, SolverSpec, TestSpec};
pub use state::{NetState, Phase, StateRule};
pub use windows::{ConvolutionParams, InnerProductParams, PoolingMethod, PoolingParams};

/// Where `path`, as written in `file`, is: beside that file, unless it is only there relative to the current directory.
pub fn resolve(file: &Path, path: impl AsRef<Path>) -> PathBuf {
    let beside = file.parent().unwrap_or(Path::new("")).join(&path);
    if beside.exists() || !path.as_ref().exists() { beside } else { path.as_ref().to_owned() }
}
