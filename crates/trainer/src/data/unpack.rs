//! Files that may be packed by gzip, and folders of files.

use super::DataError;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Opens a file. One that begins with gzip's magic number, whatever its name, is unpacked on the way: a few megabytes
/// may become gigabytes, so a reader must limit how much it takes.
///
/// # Errors
/// The file cannot be opened or read.
pub fn open_unpacked(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    unpacked(BufReader::new(File::open(path)?))
}

/// The same for what is open already.
///
/// # Errors
/// It cannot be read.
pub fn unpacked<R: BufRead + Send + 'static>(mut packed: R) -> io::Result<Box<dyn Read + Send>> {
    let is_packed = packed.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_packed { Box::new(flate2::bufread::MultiGzDecoder::new(packed)) } else { Box::new(packed) })
}

/// The entries of a folder in the order of their names, without hidden ones.
///
/// # Errors
/// The folder cannot be read.
pub fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = fs::read_dir(folder).map_err(DataError::read(folder))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    let mut paths = paths.map_err(DataError::read(folder))?;
    let hidden =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    paths.retain(|path| !hidden(path));
    paths.sort();
    Ok(paths)
}
