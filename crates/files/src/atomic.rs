//! Writing a file so that its name never stands for half of it.

use super::temporary::beside;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a file by `body`: into a temporary one in the same folder, which is made if it is not there, then to the disk,
/// then renamed over `path`, or over what that links to. What is no file, such as a pipe, is written into.
///
/// # Errors
/// What the system says if any step fails (no permission, disk full), or `body`'s own error. The temporary file is
/// removed, and whatever stood at `path` before is untouched.
pub fn write_atomically(path: &Path, body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let Some(file) = file(path)? else { return body(&mut File::options().write(true).open(path)?) };
    file.parent().map_or(Ok(()), fs::create_dir_all)?;
    write_through(&file, Ok, body)
}

/// The file that `path` stands for, or will: a link stays. None if it is something else, such as a pipe.
fn file(path: &Path) -> io::Result<Option<PathBuf>> {
    if path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let is_file = path.is_file() || !path.exists();
    let to_come = || Some(path.parent()?.join(fs::read_link(path).ok()?));
    Ok(is_file.then(|| fs::canonicalize(path).ok().or_else(to_come).unwrap_or_else(|| path.to_owned())))
}

/// [`write_atomically`] through what the caller makes of the temporary file: tests have disks that fill up.
pub(super) fn write_through<W: Write>(
    path: &Path,
    sink: impl FnOnce(File) -> io::Result<W>,
    body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = beside(path)?;
    let mut writer = BufWriter::with_capacity(1 << 16, sink(temporary.file.try_clone()?)?);
    body(&mut writer)?;
    // Without this the drop would flush, and swallow the error.
    writer.flush()?;
    temporary.file.sync_all()?;
    fs::rename(&temporary.path, path)?;
    // The rename itself is to be on the disk, too. Windows opens no folders.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if cfg!(windows) { Ok(()) } else { File::open(folder)?.sync_all() }
}

/// Whether [`write_atomically`] would get as far as writing: the folder, or the one that it would be made in, takes new
/// files, and the name is not too long, nor that of a folder. Leaves nothing behind.
///
/// # Errors
/// What the system says.
pub fn try_writing(path: &Path) -> io::Result<()> {
    let Some(file) = file(path)? else { return Ok(()) };
    let folder = file.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new(""));
    beside(&folder.join(file.file_name().unwrap_or_default())).map(drop)
}
