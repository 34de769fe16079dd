//! Weights and solver state on disk, in the safetensors format; weights of other programs, too.
//!
//! A snapshot of iteration k is two files: [`weights_path`] holds the parameters of the net alone, for other programs,
//! too; [`state_path`] holds what a resumed run needs besides, the solver's history tensors and, as JSON in the
//! metadata, a [`SolverState`] and the plans of its nets. A file has its name once it is whole and on the disk.

mod caffemodel;
mod copied;
pub(crate) mod modules;
mod place;
mod state;
mod tensors;
#[cfg(test)]
mod tests;
mod weights;

use crate::error::{NetError, Result};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

pub use copied::{CopiedFile, CopiedWeights, Weights};
pub use place::{SnapshotPlace, newest};
pub(crate) use state::PLANS;
pub use state::{SolverState, fingerprint, load_solver_state, save_solver_state};
pub use tensors::{Tensors, load_tensors, save_tensors};
pub(crate) use weights::CLASSES;
pub use weights::load_weights;

/// A tensor to be saved: its name, its shape and its elements in row-major order.
pub type NamedTensor<'a> = (String, Vec<usize>, Cow<'a, [f32]>);

/// `<prefix>_iter_<k>.safetensors`.
pub fn weights_path(prefix: &Path, iteration: u64) -> PathBuf {
    with_suffix(prefix, iteration, "safetensors")
}

/// `<prefix>_iter_<k>.solverstate.safetensors`.
pub fn state_path(prefix: &Path, iteration: u64) -> PathBuf {
    with_suffix(prefix, iteration, "solverstate.safetensors")
}

fn with_suffix(prefix: &Path, iteration: u64, extension: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(format!("_iter_{iteration}.{extension}"));
    path.into()
}
