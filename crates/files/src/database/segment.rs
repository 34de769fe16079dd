//! One file of the database.

use crate::{random, read_regular};
use planner::{CostTable, CostTableError};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// How often a folder is listed again because files went away meanwhile.
const ATTEMPTS: usize = 20;

/// A database that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("the measurement database cannot {action} {}: {source}", path.display())]
pub struct DatabaseError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl DatabaseError {
    pub(super) fn at<'p>(action: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> Self + 'p {
        move |source| Self { action, path: path.to_owned(), source }
    }
}

/// A cost table in its file.
pub(super) struct Segment {
    pub(super) path: PathBuf,
    /// `None` if its first line cannot be read, which names the device.
    pub(super) table: Option<CostTable>,
    /// What else cannot be read.
    pub(super) skipped: Vec<CostTableError>,
}

impl Segment {
    /// Reads a segment; `None` if it is gone.
    fn read(path: PathBuf) -> Result<Option<Self>, String> {
        let bytes = match read_regular(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // What is still listed, but not there, is a link.
                let is_link = fs::symlink_metadata(&path).is_ok();
                return if is_link {
                    Err(format!("{} is a link to nothing", path.display()))
                } else {
                    Ok(None)
                };
            }
            bytes => bytes.map_err(|error| format!("{}: {error}", path.display()))?,
        };
        // Bytes that are no text spoil their line only.
        let text = String::from_utf8_lossy(&bytes);
        let (table, skipped) = match CostTable::from_json_lines_lenient(&text) {
            Ok((table, skipped)) => (Some(table), skipped),
            Err(error) => (None, vec![error]),
        };
        Ok(Some(Self { path, table, skipped }))
    }

    /// What cannot be read, a sentence each.
    pub(super) fn complaints(&self) -> impl Iterator<Item = String> {
        self.skipped.iter().map(|error| format!("{}: {error}", self.path.display()))
    }
}

/// The segments of a folder, the oldest first, and what keeps others from being read; none if there is no such folder.
pub(super) fn segments(folder: &Path) -> Result<(Vec<Segment>, Vec<String>), DatabaseError> {
    for _ in 0..ATTEMPTS {
        let (mut segments, mut unread, mut gone) = (Vec::new(), Vec::new(), false);
        for path in list(folder, is_segment)? {
            match Segment::read(path) {
                Ok(Some(segment)) => segments.push(segment),
                Ok(None) => gone = true,
                Err(reason) => unread.push(reason),
            }
        }
        // A segment that went away has been merged into one that may not have been there when the folder was listed.
        if !gone {
            return Ok((segments, unread));
        }
    }
    let source = io::Error::other("its files keep changing");
    Err(DatabaseError::at("read", folder)(source))
}

/// What is in `folder` and `wanted`, in order; nothing if there is no such folder.
pub(super) fn list(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, DatabaseError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect()),
    };
    let mut paths: Vec<PathBuf> = entries.map_err(DatabaseError::at("read", folder))?;
    paths.retain(|path| wanted(path));
    paths.sort();
    Ok(paths)
}

/// Whether `path` has the name of a segment. Hidden files are being written.
fn is_segment(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".jsonl") && !name.starts_with('.')
}

/// A unique name, later in order than those chosen before.
pub(super) fn fresh_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{now:020}-{:016x}.jsonl", random())
}

/// A unique name beside `path`, next to it in order.
pub(super) fn successor(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let time = name.split(['-', '.']).next().unwrap_or_default();
    path.with_file_name(format!("{time}-{:016x}.jsonl", random()))
}
