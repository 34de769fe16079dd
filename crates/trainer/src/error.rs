//! What can go wrong between a net's specification and its run.

use crate::{prototxt::Location, spec::LayerSpec};
use thiserror::Error;

/// Any error with a sentence of its own.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a net could not be built or run. Every variant prints as one sentence that names the layer or the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetError {
    /// A layer does not fit into its net.
    #[error("{location}: layer '{layer}': {message}")]
    Layer {
        /// Where the layer stands.
        location: Location,
        /// Its name.
        layer: String,
        /// What is wrong.
        message: String,
    },
    /// A layer failed while it ran.
    #[error("layer '{layer}': {source}")]
    Run {
        /// The layer's name.
        layer: String,
        /// What happened.
        source: BoxError,
    },
    /// The net as a whole cannot do what was asked of it.
    #[error("net '{net}': {message}")]
    Net {
        /// The net's name.
        net: String,
        /// What is wrong.
        message: String,
    },
    /// The convolutions could not be planned.
    #[error(transparent)]
    Plan(#[from] planner::PlanError),
    /// The device failed. Errors are asynchronous, so the step is unknown.
    #[error(transparent)]
    Device(#[from] tensor::cuda::CudaError),
    /// Another rank has failed, or is lost.
    #[error(transparent)]
    Rank(#[from] crate::group::RankError),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] tensor::MemoryError),
    /// Measuring was stopped on request.
    #[error("while kernels were measured; {}", match kept {
        true => "what was measured is kept in the database",
        false => "nothing of it is kept, as there is no database",
    })]
    Stopped {
        /// Whether what was measured is in a database.
        kept: bool,
    },
    /// A run needs more memory than there is, a kernel does not compute what it should, or a GPU met a label out of
    /// range; in a sentence.
    #[error("{0}")]
    Refused(String),
    /// A kernel could not be measured.
    #[error("measuring the convolution kernels failed: {0}")]
    Profile(BoxError),
}

impl NetError {
    /// `layer` does not fit into its net, as `message` says.
    pub(crate) fn layer(layer: &LayerSpec, message: String) -> Self {
        Self::Layer { location: layer.location.clone(), layer: layer.name.clone(), message }
    }
}
