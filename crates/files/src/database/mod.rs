//! Measurements that outlive a run: a folder with the cost tables of every device that was ever measured.
//!
//! ```text
//! measurements/
//!   intel-xeon-processor-2-3f1d.../        one folder for each device, library version and number of threads
//!     01795203661228441000-9d1c....jsonl   one segment for each run that measured something: a cost table
//! ```
//!
//! Any number of processes, on any number of machines, may read and write at once, over network file systems too, where
//! appending to a shared file is not safe: no process writes to a file that another one can see. A segment is written
//! under a name of its own and then renamed, which every file system does at once or not at all. Readers join all
//! segments; of two measurements of one kernel and size the later counts. What cannot be read stays as it is.

#[cfg(test)]
mod tests;

use crate::{fnv1a, random, read_regular, remove_abandoned, try_writing, write_atomically};
use planner::{CostTable, DeviceHeader};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fmt::Display, fs, io};

/// A database that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("the measurement database cannot {action} {}: {source}", path.display())]
pub struct DatabaseError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl DatabaseError {
    fn at<'p>(action: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> Self + 'p {
        move |source| Self { action, path: path.to_owned(), source }
    }
}

/// A folder of cost tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    folder: PathBuf,
}

impl Database {
    /// The database in `folder`, which is made when something is first written.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The database that a user names: a folder, new or not, or `none`; the one in `default` if nothing is named.
    ///
    /// # Errors
    /// A sentence, if a file has this name.
    pub fn named(name: Option<&Path>, default: Option<PathBuf>) -> Result<Option<Self>, String> {
        let folder = name.map(Path::to_owned).or(default).filter(|folder| folder != Path::new("none"));
        match &folder {
            Some(file) if file.exists() && !file.is_dir() => {
                let file = file.display();
                Err(format!("the measurement database {file} is a file; it must be a folder, new or not"))
            }
            _ => Ok(folder.map(Self::new)),
        }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Everything known of `device`, whose date and command do not count; and in a sentence what cannot be read, if there
    /// is anything: the folder, or files and lines in it, which are skipped.
    pub fn read(&self, device: &DeviceHeader) -> (CostTable, Option<String>) {
        let (mut table, mut unreadable) = (CostTable::new(device.clone()), Vec::new());
        let segments = match segments(&self.folder.join(folder_name(device))) {
            Ok(segments) => segments,
            Err(error) => return (table, Some(error.to_string())),
        };
        for path in segments {
            let name = path.display();
            let mut complain = |reason: &dyn Display| unreadable.push(format!("{name}: {reason}"));
            match read_regular(&path) {
                Err(error) => complain(&error),
                // Bytes that are no text spoil their line only.
                Ok(bytes) => match CostTable::from_json_lines_lenient(&String::from_utf8_lossy(&bytes)) {
                    Err(error) => complain(&error),
                    Ok((segment, skipped)) => {
                        skipped.iter().for_each(|error| complain(error));
                        table.merge(segment).unwrap_or_else(|error| complain(&error));
                    }
                },
            }
        }
        let warning = unreadable.first().map(|first| {
            let (count, s) = (unreadable.len(), if unreadable.len() == 1 { "" } else { "s" });
            format!("the measurement database cannot be read in {count} place{s}; nothing there is changed: {first}")
        });
        (table, warning)
    }

    /// Adds the measurements of `table`, as a segment of their own; nothing if there are none. Removes what writers
    /// that have died there left half written.
    ///
    /// # Errors
    /// When the segment cannot be written; nothing is changed then.
    pub fn add(&self, table: &CostTable) -> Result<(), DatabaseError> {
        if table.is_empty() {
            return Ok(());
        }
        let segment = self.new_segment(&table.device)?;
        remove_abandoned(segment.parent().unwrap_or(&self.folder), |name| name.ends_with(".jsonl"));
        write(&segment, &table.to_json_lines())
    }

    /// Whether measurements of `device` could be added.
    ///
    /// # Errors
    /// As [`Database::add`].
    pub fn try_adding(&self, device: &DeviceHeader) -> Result<(), DatabaseError> {
        let segment = self.new_segment(device)?;
        try_writing(&segment).map_err(DatabaseError::at("write", &segment))
    }

    /// A unique name, later in order than those chosen before, in the folder of `device`, which is made.
    fn new_segment(&self, device: &DeviceHeader) -> Result<PathBuf, DatabaseError> {
        let folder = self.folder.join(folder_name(device));
        fs::create_dir_all(&folder).map_err(DatabaseError::at("make", &folder))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Ok(folder.join(format!("{now:020}-{:016x}.jsonl", random())))
    }
}

/// The segments in `folder`, the oldest first; none if there is no such folder. Hidden files are being written.
fn segments(folder: &Path) -> Result<Vec<PathBuf>, DatabaseError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect()),
    };
    let mut paths: Vec<PathBuf> = entries.map_err(DatabaseError::at("read", folder))?;
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".jsonl") && !name.starts_with('.')
    });
    paths.sort();
    Ok(paths)
}

fn write(path: &Path, text: &str) -> Result<(), DatabaseError> {
    write_atomically(path, |file| file.write_all(text.as_bytes())).map_err(DatabaseError::at("write", path))
}

/// Where measurements are kept unless somebody says otherwise: a folder in the user's cache, if there is one.
pub fn default_folder() -> Option<PathBuf> {
    // As the XDG base directory specification has it: a relative path counts as none.
    let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    // Windows has none of these.
    let cache = cache.or_else(|| folder("LOCALAPPDATA"))?;
    Some(cache.join("microbatch/measurements"))
}

/// A name that says whose measurements are inside, and a number in which everything that matters counts.
pub fn folder_name(device: &DeviceHeader) -> String {
    let DeviceHeader { name, library_version, threads, .. } = device;
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let short: String = words.collect::<Vec<_>>().join("-").to_ascii_lowercase().chars().take(40).collect();
    let bytes = [name, library_version, threads].into_iter().flat_map(|text| text.bytes().chain([0]));
    format!("{short}-{:016x}", fnv1a(bytes))
}
