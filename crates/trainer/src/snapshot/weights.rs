//! Weights, and not what looks like them: the momentum in a solver state has their very names and shapes.

use super::{NetError, Result, Tensors, caffemodel, tensors};
use files::read_regular;
use std::path::Path;

/// How files of other kinds begin that users take for weights, and what to say of them.
const OTHERS: [(&[u8], &str); 2] = [
    (b"PK\x03\x04", "it is an archive of PyTorch; save its state dict as safetensors"),
    (b"\x89HDF", "it is an HDF5 file; save the net as .caffemodel or safetensors"),
];

/// Reads a file of weights: a safetensors file of any program, or a caffemodel. Its content tells which it is.
///
/// # Errors
/// Those of [`load_tensors`](super::load_tensors); [`NetError::Refused`] for a solver state.
pub fn load_weights(path: &Path) -> Result<Tensors> {
    let bytes = read_regular(path).map_err(NetError::read(path))?;
    let parsed = match OTHERS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        Some((_, what)) => Err((*what).to_owned()),
        None if tensors::is_safetensors(&bytes) => tensors::parse(path, bytes),
        None => caffemodel::parse(path, &bytes),
    };
    let tensors = parsed.map_err(|reason| NetError::corrupt(path, reason))?;
    if tensors.metadata(STATE).is_none() {
        return Ok(tensors);
    }
    Err(NetError::refused(path, "is a solver state (the momentum of a training), not weights"))
}

/// Key of a solver's state in the metadata of its file.
pub(super) const STATE: &str = "solver_state";
/// Key of the names of classes in the metadata of weights.
pub(crate) const CLASSES: &str = "classes";
