//! Weights, and not what looks like them: the momentum in a solver state has their very names and shapes.

use super::{SnapshotError, Tensors, load_solver_state, load_tensors, state};
use std::path::Path;

/// Reads a file of weights.
///
/// # Errors
/// Those of [`load_tensors`]; [`SnapshotError::Refused`] for a solver state, naming the weights that go with it.
pub fn load_weights(path: &Path) -> Result<Tensors, SnapshotError> {
    let tensors = load_tensors(path)?;
    if tensors.metadata(state::KEY).is_none() {
        return Ok(tensors);
    }
    let weights = match load_solver_state(path) {
        Ok((state, _)) => format!("; its weights are in {}", path.with_file_name(state.weights).display()),
        // Whatever else is wrong with it, it is no file of weights.
        Err(_) => String::new(),
    };
    let what = format!("is a solver state (the momentum of a training), not weights{weights}");
    Err(SnapshotError::refused(path, what))
}
