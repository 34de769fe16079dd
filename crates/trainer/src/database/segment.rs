//! One file of the database.

use super::DatabaseError;
use crate::files::{random, read_regular};
use planner::{CostTable, CostTableError};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// How often a folder is listed again because files went away meanwhile.
const ATTEMPTS: usize = 20;

/// A cost table as somebody wrote it.
pub(super) struct Segment {
    pub(super) path: PathBuf,
    /// `None` if its first line cannot be read: nobody knows then whose measurements these are.
    pub(super) table: Option<CostTable>,
    /// What else cannot be read.
    pub(super) skipped: Vec<CostTableError>,
}

/// What became of a file that was listed.
enum Found {
    Segment(Segment),
    /// Why it cannot be read.
    Unread(String),
    Gone,
}

impl Segment {
    /// Reads a segment.
    fn read(path: PathBuf) -> Found {
        let bytes = match read_regular(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // What is still listed, but not there, is a link.
                return match fs::symlink_metadata(&path) {
                    Ok(_) => Found::Unread(format!("{} is a link to nothing", path.display())),
                    Err(_) => Found::Gone,
                };
            }
            Err(error) => return Found::Unread(format!("{}: {error}", path.display())),
        };
        // Bytes that are no text spoil their line only.
        let text = String::from_utf8_lossy(&bytes);
        let (table, skipped) = match CostTable::from_json_lines_lenient(&text) {
            Ok((table, skipped)) => (Some(table), skipped),
            Err(error) => (None, vec![error]),
        };
        Found::Segment(Self { path, table, skipped })
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
        for path in paths(folder)? {
            match Segment::read(path) {
                Found::Segment(segment) => segments.push(segment),
                Found::Unread(reason) => unread.push(reason),
                Found::Gone => gone = true,
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

fn paths(folder: &Path) -> Result<Vec<PathBuf>, DatabaseError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(DatabaseError::at("read", folder))?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(DatabaseError::at("read", folder))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Hidden files are being written.
        if name.ends_with(".jsonl") && !name.starts_with('.') {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// A name that nobody else chooses, later in order than those chosen before.
pub(super) fn fresh_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{now:020}-{:016x}.jsonl", random())
}

/// A name beside `path` that nobody else chooses, next to it in order.
pub(super) fn successor(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let time = name.split(['-', '.']).next().unwrap_or_default();
    path.with_file_name(format!("{time}-{:016x}.jsonl", random()))
}
