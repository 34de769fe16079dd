//! Files that are being written, and what becomes of those whose writer has died.

use super::claim::{ATTEMPTS, Claim};
use super::{is_at, random};
use std::fs::{self, OpenOptions, TryLockError};
use std::{ffi::OsString, io, path::Path, time::Duration};

/// Locks of one machine need not be seen by another: a file whose writer may be there is left alone for so long.
const SURELY_DEAD: Duration = Duration::from_secs(24 * 60 * 60);

/// A new empty file beside `path`, which it is to become: a rename is atomic only within one file system. It is locked as
/// long as it is written, and goes when it is dropped, unless it was renamed.
pub(super) fn beside(path: &Path) -> io::Result<Claim> {
    // Another name is tried when another process cleans up at the same moment.
    for _ in 0..ATTEMPTS {
        // `.NAME.BOOT-RANDOM.tmp`: hidden, its own for every write, and of the run of the system whose locks count.
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}-{:016x}.tmp", boot().unwrap_or_default(), random()));
        let path = path.with_file_name(name);
        // Never what is there already: a link, perhaps, to something that is not ours.
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let new = Claim { path, file };
        // Where there are no locks, no process cleans up either, before a day has passed.
        let is_ours = !matches!(new.file.try_lock(), Err(TryLockError::WouldBlock));
        if is_ours && is_at(&new.path, &new.file)? {
            return Ok(new);
        }
    }
    Err(io::Error::other("temporary files are removed as soon as they are made"))
}

/// The temporary files in `folder` that were to become a file of a name that `is_wanted`, and whose writer has died,
/// are removed. What cannot be told or removed stays.
pub fn remove_abandoned(folder: &Path, is_wanted: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((target, boot)) = name.to_str().and_then(parse) else { continue };
        if is_wanted(target) {
            // Whatever is wrong with one is no reason not to look at the others.
            let _ = remove_if_abandoned(&entry.path(), boot);
        }
    }
}

/// The name that a temporary file was to get, and the run of the system that it was written in; `None` for other names.
/// Earlier versions wrote `.NAME.PROCESS-NUMBER.tmp`, which reads the same.
fn parse(name: &str) -> Option<(&str, &str)> {
    let (target, tag) = name.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?;
    let (boot, number) = tag.split_once('-')?;
    let is_number = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    (is_number(boot) && is_number(number) && !number.is_empty()).then_some((target, boot))
}

fn remove_if_abandoned(path: &Path, written_in: &str) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(());
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let is_of_this_boot = boot().is_some_and(|boot| boot == written_in);
    let age = file.metadata()?.modified()?.elapsed().unwrap_or_default();
    // A writer has the lock; while we have it, none begins to write.
    if file.try_lock().is_ok() && (is_of_this_boot || age > SURELY_DEAD) && is_at(path, &file)? {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// This run of the system, the same in all its containers: the beginning of Linux's random name for it.
fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    id.get(..8).map(str::to_owned)
}
