//! Keeping a name for one process alone.

use super::is_at;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

/// How often the file is opened again because another process has just removed it.
pub(super) const ATTEMPTS: usize = 20;

/// What became of a [`claim()`].
#[derive(Debug)]
pub enum Claimed {
    /// No other process has it, as long as this lives.
    Ours(Claim),
    /// Another process has it, which is described in words.
    Taken(String),
    /// The file system has no locks, or refuses one: it is unknown whether another process has it.
    Unknown(io::Error),
}

/// A file with a lock. It goes when this is dropped; a process that dies leaves the file, but not the lock.
#[derive(Debug)]
pub struct Claim {
    pub(super) path: PathBuf,
    pub(super) file: File,
}

/// Claims what the file `path` stands for. The file is made for that, in a folder that must be there.
pub fn claim(path: &Path) -> Claimed {
    let attempted = (0..ATTEMPTS).find_map(|_| attempt(path).transpose());
    let changes = || Err(io::Error::other(format!("{} is a link, or keeps changing", path.display())));
    attempted.unwrap_or_else(changes).unwrap_or_else(Claimed::Unknown)
}

/// `None` if the file is not what it was when it was opened.
fn attempt(path: &Path) -> io::Result<Option<Claimed>> {
    let mut file = match open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        file => file?,
    };
    match file.try_lock() {
        Err(TryLockError::Error(error)) => return Err(error),
        Err(TryLockError::WouldBlock) => return Ok(Some(Claimed::Taken(io::read_to_string(file)?))),
        Ok(()) => {}
    }
    // Before anything is written: a link may lead to a file of another user.
    if !is_at(path, &file)? {
        return Ok(None);
    }
    file.set_len(0)?;
    file.write_all(holder().as_bytes())?;
    Ok(Some(Claimed::Ours(Claim { path: path.to_owned(), file })))
}

/// Opens the file, or makes it; does not follow a link to make it elsewhere.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    match options.read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => options.create_new(true).open(path),
        opened => opened,
    }
}

/// This process, for the reader of a message of another one.
fn holder() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { String::new() } else { format!(" on {}", host.trim()) };
    format!("process {}{host}", process::id())
}

impl Drop for Claim {
    fn drop(&mut self) {
        // While it is still locked: a process that has opened it meanwhile sees that it is gone. What was renamed stays.
        if is_at(&self.path, &self.file).unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
