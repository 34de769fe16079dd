//! Weights, and not what looks like them: the momentum in a solver state has their very names and shapes.

use super::{SnapshotError, Tensors, caffemodel, load_solver_state, state, tensors};
use std::path::Path;

/// How files of other kinds begin that users take for weights, and what to say of them.
const OTHERS: [(&[u8], &str); 2] = [
    (b"PK\x03\x04", "it is an archive of PyTorch; save its state dict as safetensors"),
    (b"\x89HDF", "it is an HDF5 file; save the net as .caffemodel or safetensors"),
];

/// Reads a file of weights: a safetensors file, our own or another program's, or a caffemodel. Which it is follows from
/// its content.
///
/// # Errors
/// Those of [`load_tensors`](super::load_tensors); [`SnapshotError::Refused`] for a solver state, naming the weights
/// that go with it.
pub fn load_weights(path: &Path) -> Result<Tensors, SnapshotError> {
    let bytes = tensors::read(path)?;
    let parsed = match OTHERS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        Some((_, what)) => Err((*what).to_owned()),
        None if tensors::is_safetensors(&bytes) => tensors::parse(path, bytes),
        None => caffemodel::parse(path, &bytes),
    };
    let tensors = parsed.map_err(|reason| SnapshotError::corrupt(path, reason))?;
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

/// Key of the names of classes in the metadata of weights.
pub(crate) const CLASSES: &str = "classes";
