//! Writing a file so that its name never stands for half of it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::SnapshotError;

/// Where bytes go until they are safe. Files are one kind; the tests have disks that fill up.
pub(super) trait Sink: Write {
    /// Returns when everything written is on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl Sink for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Writes a file by `body`: into a temporary one in the same folder, then to the disk, then renamed over `path`.
///
/// # Errors
/// [`SnapshotError::Write`] if any step fails (no such folder, no permission, disk full, `body`'s own error). The
/// temporary file is removed, and whatever stood at `path` before is untouched.
pub fn write_atomically(
    path: &Path,
    body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), SnapshotError> {
    write_through(path, |temporary| File::create(temporary), body)
}

/// [`write_atomically`] through a sink of the caller's choice.
pub(super) fn write_through<S: Sink>(
    path: &Path,
    create: impl FnOnce(&Path) -> io::Result<S>,
    body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), SnapshotError> {
    let temporary = temporary_path(path);
    let written = fill(&temporary, create, body).and_then(|()| fs::rename(&temporary, path));
    let written = match written {
        Ok(()) => sync_folder(path),
        Err(error) => {
            // Nothing better can be done if this fails too: the name says what it is, and no reader looks at it.
            let _ = fs::remove_file(&temporary);
            Err(error)
        }
    };
    written.map_err(|source| SnapshotError::Write { path: path.to_owned(), source })
}

fn fill<S: Sink>(
    temporary: &Path,
    create: impl FnOnce(&Path) -> io::Result<S>,
    body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 16, create(temporary)?);
    body(&mut writer)?;
    // Without this the drop would flush, and swallow the error.
    writer.flush()?;
    writer.get_mut().sync()
}

/// A name of its own for every write, hidden, beside the target: a rename is atomic only within one file system.
fn temporary_path(path: &Path) -> PathBuf {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{}.tmp", process::id(), WRITES.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

/// Puts the rename itself on the disk.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Elsewhere a folder cannot be opened like a file; the system journals the rename.
#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}
