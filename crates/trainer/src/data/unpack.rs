//! Files that may be packed by gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Opens a file. One that begins with gzip's magic number, whatever its name, is unpacked on the way: a few megabytes may
/// become gigabytes, so that whoever reads it should know how much to expect.
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
