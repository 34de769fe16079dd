//! Finding out what a `source` is.

use super::{
    Cifar10, DataError, Dataset, Idx, Phase,
    cifar::{self, is_cifar_folder},
    idx::{self, is_idx_images, labels_beside},
    open_unpacked,
};
use std::{
    io::{Cursor, Read},
    path::Path,
    sync::Arc,
};

/// Opens the `source` of a `Data` layer by its content: an IDX file of images, or a folder with IDX pairs; a file of
/// CIFAR-10 records, or their folder.
///
/// # Errors
/// Those of [`Idx::open`] and [`Cifar10::open`]; the source is something else, such as an LMDB or LevelDB
/// database.
pub fn open_source(source: &Path, phase: Phase) -> Result<Arc<dyn Dataset>, DataError> {
    if source.is_dir() {
        return open_folder(source, phase);
    }
    let mut file = open_unpacked(source).map_err(DataError::read(source))?;
    let mut head = Vec::new();
    file.by_ref().take(4).read_to_end(&mut head).map_err(DataError::read(source))?;
    let is_idx = is_idx_images(&head);
    let bytes = Cursor::new(head).chain(file);
    Ok(match is_idx {
        true => Arc::new(Idx::read(source, bytes, &labels_beside(source)?)?),
        false => Arc::new(Cifar10::read(source, bytes, &format!("{NEITHER}: it "))?),
    })
}

const NEITHER: &str = "is neither a file of IDX images nor one of CIFAR-10 records";

/// Channels, height and width of the images of a `source`, of which no more is read than a header, or, as CIFAR-10 has
/// none, how long it is.
///
/// # Errors
/// The source is not there, or is neither IDX nor CIFAR-10.
pub fn source_shape(source: &Path, phase: Phase) -> Result<[usize; 3], DataError> {
    if source.is_dir() && is_cifar_folder(source) {
        return Ok(cifar::SHAPE);
    }
    let images = if source.is_dir() { idx::find_images(source, phase)? } else { source.to_owned() };
    match idx::image_shape(&images)? {
        Some(shape) => Ok(shape),
        None if cifar::holds_records(&images)? => Ok(cifar::SHAPE),
        None => Err(DataError::at(source.display(), NEITHER)),
    }
}

fn open_folder(source: &Path, phase: Phase) -> Result<Arc<dyn Dataset>, DataError> {
    for (file, database) in [("data.mdb", "LMDB"), ("CURRENT", "LevelDB")] {
        if source.join(file).exists() {
            let reason = format!(
                "is a database of {database}, which cannot be read; use IDX, CIFAR-10 or image files"
            );
            return Err(DataError::at(source.display(), reason));
        }
    }
    if is_cifar_folder(source) {
        return Ok(Arc::new(Cifar10::open(source, phase)?));
    }
    let images = idx::find_images(source, phase)?;
    Ok(Arc::new(Idx::open(&images, &labels_beside(&images)?)?))
}
