//! Finding out what a `source` is.

use std::path::Path;
use std::sync::Arc;

use super::cifar::{is_cifar_folder, is_cifar_length};
use super::idx::{is_idx_images, read_maybe_gzip};
use super::{Cifar10, DataError, Dataset, Idx, Phase};

/// Opens the `source` of a `Data` layer by its content: an IDX file of images, or a folder with IDX pairs; a file of
/// CIFAR-10 records, or their folder.
///
/// # Errors
/// Those of [`Idx::open_source`] and [`Cifar10::open`]; the source is something else, such as an LMDB or LevelDB
/// database.
pub fn open_source(source: &Path, phase: Phase) -> Result<Arc<dyn Dataset>, DataError> {
    if source.is_dir() {
        return open_folder(source, phase);
    }
    let bytes = read_maybe_gzip(source)?;
    if is_idx_images(&bytes) {
        return Ok(Arc::new(Idx::open_source(source, phase)?));
    }
    if is_cifar_length(bytes.len() as u64) {
        return Ok(Arc::new(Cifar10::open(source, phase)?));
    }
    Err(DataError::format(source, "is neither a file of IDX images nor one of CIFAR-10 records"))
}

fn open_folder(source: &Path, phase: Phase) -> Result<Arc<dyn Dataset>, DataError> {
    for (file, database) in [("data.mdb", "LMDB"), ("CURRENT", "LevelDB")] {
        if source.join(file).exists() {
            let reason = format!(
                "is a database of {database}, which cannot be read; use IDX, CIFAR-10 or image files"
            );
            return Err(DataError::format(source, reason));
        }
    }
    if is_cifar_folder(source) {
        return Ok(Arc::new(Cifar10::open(source, phase)?));
    }
    Ok(Arc::new(Idx::open_source(source, phase)?))
}
