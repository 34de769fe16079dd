//! Files that may be packed by gzip, and folders of files.

use super::{NetError, Result};
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
pub fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let entries = entries.map_err(NetError::read(folder))?.into_iter();
    let shown = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    let mut paths: Vec<PathBuf> = shown.map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}
