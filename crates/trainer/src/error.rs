//! What can go wrong with a net between its specification and its snapshots.

use crate::spec::LayerSpec;
use std::{fmt::Display, io, path::Path};
use thiserror::Error;

/// Any error with a sentence of its own.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What fails with a [`NetError`] unless said otherwise.
pub(crate) type Result<T, E = NetError> = std::result::Result<T, E>;

/// Why a net could not be built, run or trained, its data could not be read, or a snapshot of it could not be written or used.
/// Every variant prints as one sentence that names the layer, the file or the sample.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetError {
    /// A layer does not fit into its net or failed while it ran, a net cannot do what was asked of it, a run needs more
    /// memory than there is, a kernel does not compute what it should, or a GPU met a label out of range; a file, a sample
    /// or settings of data that do not do, or no thread to load them; a snapshot's file that the system refuses, and that
    /// has not changed then, one that is damaged, of another kind, or of another net or training, or a place or tensors
    /// that cannot be written; in a sentence.
    #[error("{0}")]
    Refused(String),
    /// A net or solver file.
    #[error(transparent)]
    Spec(#[from] crate::prototxt::SpecError),
    /// The convolutions could not be planned.
    #[error(transparent)]
    Plan(#[from] planner::PlanError),
    /// The device failed. Errors are asynchronous, so the step is unknown.
    #[error(transparent)]
    Device(#[from] tensor::cuda::CudaError),
    /// The loss is no longer a number.
    #[error(
        "the loss is {loss} at iteration {iteration}: the training has diverged (a lower base_lr may help)"
    )]
    Diverged {
        /// The loss.
        loss: f64,
        /// The iteration.
        iteration: u64,
    },
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
    /// A kernel could not be measured.
    #[error("measuring the convolution kernels failed: {0}")]
    Profile(BoxError),
}

impl NetError {
    /// `layer` does not fit into its net, as `message` says.
    pub(crate) fn layer(layer: &LayerSpec, message: impl Display) -> Self {
        Self::Refused(format!("{}: layer '{}': {message}", layer.location, layer.name))
    }

    /// The layer of this name failed while it ran, for this `reason`.
    pub(crate) fn run(layer: &str, reason: impl Display) -> Self {
        Self::Refused(format!("layer '{layer}': {reason}"))
    }

    /// A file or folder is missing or not readable, or a gzip stream in it is damaged or cut short.
    pub(crate) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        Self::file("cannot read", path)
    }

    /// What was tried with the file at `path`, as the beginning of a sentence, for what the system says of it.
    pub(crate) fn file(action: &str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Refused(format!("{action} {}: {source}", path.display()))
    }

    /// `reason` is wrong at `place`: a file, a line of one, or a sample ([`Dataset::place`](crate::data::Dataset::place)).
    pub(crate) fn at(place: impl Display, reason: impl Display) -> Self {
        Self::Refused(format!("{place}: {reason}"))
    }

    /// `what` the file at `path` is instead of what it should be, as the end of a sentence.
    pub(crate) fn refused(path: &Path, what: impl Display) -> Self {
        Self::Refused(format!("{} {what}", path.display()))
    }

    /// The file at `path` is cut short, damaged or something else.
    pub(crate) fn corrupt(path: &Path, reason: impl Display) -> Self {
        Self::refused(path, format!("is not a complete snapshot: {reason}"))
    }
}
