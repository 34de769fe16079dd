//! Writing a file so that its name never stands for half of it.

use super::temporary::Temporary;
use std::io::{self, BufWriter, Write};
use std::{fs::File, path::Path};

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
/// What the system says if any step fails (no such folder, no permission, disk full), or `body`'s own error. The
/// temporary file is removed, and whatever stood at `path` before is untouched.
pub fn write_atomically(path: &Path, body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    write_through(path, Ok, body)
}

/// [`write_atomically`] through a sink that the caller makes of the temporary file.
pub(super) fn write_through<S: Sink>(
    path: &Path,
    sink: impl FnOnce(File) -> io::Result<S>,
    body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = Temporary::beside(path)?;
    let mut writer = BufWriter::with_capacity(1 << 16, sink(temporary.file()?)?);
    body(&mut writer)?;
    // Without this the drop would flush, and swallow the error.
    writer.flush()?;
    writer.get_mut().sync()?;
    temporary.rename(path)?;
    // The rename itself is to be on the disk, too.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Whether [`write_atomically`] would get as far as writing: the folder is there and takes new files, and the name is
/// not too long. Leaves nothing behind.
///
/// # Errors
/// What the system says.
pub fn try_writing(path: &Path) -> io::Result<()> {
    Temporary::beside(path).map(drop)
}
