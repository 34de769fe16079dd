//! Files in folders that other processes and machines use, too, some of them hostile.
//!
//! A file appears under its name only when it is complete and on the disk ([`write_atomically`]); until then it has a
//! temporary name that cannot be guessed. A lock on it tells a process that is still writing from one that has died
//! ([`remove_abandoned`]); another kind of lock keeps a name for one process alone ([`claim()`]).

mod atomic;
mod claim;
pub mod database;
mod temporary;
#[cfg(test)]
mod tests;

use same_file::Handle;
use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read};
use std::{collections::hash_map::RandomState, path::Path};

pub use atomic::{try_writing, write_atomically};
pub use claim::{Claim, Claimed, claim};
pub use temporary::remove_abandoned;

/// Reads a whole file. Only a regular one: a named pipe may never begin, and a device never end.
///
/// # Errors
/// What the system says, or that it is no regular file.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let check = |metadata: Metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    };
    // Before it is opened, too: that alone waits for the other end of a named pipe.
    check(fs::metadata(path)?)?;
    let mut file = File::open(path)?;
    check(file.metadata()?)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A short number for a long text, FNV-1a in 64 bits: the same on every machine and in every version, which the standard
/// library's hashes need not be.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A number that cannot be guessed: the standard library keys every hasher with random numbers of the system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Whether `file` is what `path` names: neither removed since it was opened, nor behind a link.
fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    let is_it = || {
        let is_link = fs::symlink_metadata(path)?.is_symlink();
        Ok(!is_link && Handle::from_path(path)? == Handle::from_file(file.try_clone()?)?)
    };
    is_it().or_else(|error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Ok(false),
        _ => Err(error),
    })
}
