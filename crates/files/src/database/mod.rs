//! Measurements that outlive a run: a folder with the cost tables of every device that was ever measured.
//!
//! ```text
//! measurements/
//!   intel-xeon-processor-2-3f1d.../        one folder for each device, library version and number of threads
//!     01795203661228441000-9d1c....jsonl   one segment for each run that measured something: a cost table
//!     01795....jsonl.unreadable            segments with unreadable lines, put aside when segments are merged
//! ```
//!
//! Any number of processes, on any number of machines, may read and write at once, over network file systems too, where
//! appending to a shared file is not safe: no process writes to a file that another one can see. A segment is written
//! under a name of its own and then renamed, which every file system does at once or not at all. Readers join all
//! segments; of two measurements of one kernel and size the later counts. Segments are merged only on demand
//! ([`Database::compact`]), and what cannot be read is never thrown away.

mod segment;
#[cfg(test)]
mod tests;

use crate::{digest::fnv1a, remove_abandoned, try_writing, write_atomically};
use planner::{CostTable, DeviceHeader, MergeError};
use segment::{Segment, fresh_name, list, segments};
use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

pub use segment::DatabaseError;

/// A folder of cost tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    folder: PathBuf,
}

/// What a database knows of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// The measurements.
    pub table: CostTable,
    /// What could not be read, if there was anything: one sentence.
    pub warning: Option<String>,
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
        let folder = match name {
            Some(name) => Some(name.to_owned()).filter(|name| name != Path::new("none")),
            None => default,
        };
        if let Some(file) = folder.as_ref().filter(|folder| folder.is_file()) {
            let file = file.display();
            return Err(format!(
                "the measurement database {file} is a file; it must be a folder, new or not"
            ));
        }
        Ok(folder.map(Self::new))
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Everything known of `device`; dates and commands do not count.
    ///
    /// # Errors
    /// When the folder cannot be listed. Files that cannot be read, and lines that make no sense, are no error: they
    /// are skipped, and the warning says so.
    pub fn read(&self, device: &DeviceHeader) -> Result<Known, DatabaseError> {
        read_folder(&self.folder_of(device), device)
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
        let folder = self.make_folder(&table.device)?;
        remove_abandoned(&folder, |name| name.ends_with(".jsonl"));
        write(&folder.join(fresh_name()), &table.to_json_lines())
    }

    /// Whether measurements of `device` could be added.
    ///
    /// # Errors
    /// As [`Database::add`].
    pub fn try_adding(&self, device: &DeviceHeader) -> Result<(), DatabaseError> {
        let segment = self.make_folder(device)?.join(fresh_name());
        try_writing(&segment).map_err(DatabaseError::at("write", &segment))
    }

    fn make_folder(&self, device: &DeviceHeader) -> Result<PathBuf, DatabaseError> {
        let folder = self.folder_of(device);
        fs::create_dir_all(&folder).map_err(DatabaseError::at("make", &folder))?;
        Ok(folder)
    }

    /// Makes one segment of all that each device has. Segments with lines that cannot be read are kept under another
    /// name. Those that others add meanwhile stay, and so do files that cannot be read at all. Returns how many
    /// segments there were, and how many there are.
    ///
    /// # Errors
    /// When files cannot be read or written; nothing is lost then, as segments go only when their contents stand
    /// elsewhere.
    pub fn compact(&self) -> Result<(usize, usize), DatabaseError> {
        let (mut before, mut after) = (0, 0);
        for folder in list(&self.folder, |path| path.is_dir())? {
            let (of_folder, _) = segments(&folder)?;
            before += of_folder.len();
            after += compact_folder(&of_folder)?;
        }
        Ok((before, after))
    }

    /// The table of every device, with a warning each.
    ///
    /// # Errors
    /// When files cannot be read.
    pub fn devices(&self) -> Result<Vec<Known>, DatabaseError> {
        let mut devices = Vec::new();
        for folder in list(&self.folder, |path| path.is_dir())? {
            let (segments, _) = segments(&folder)?;
            let headers = segments.into_iter().filter_map(|segment| Some(segment.table?.device));
            if let Some(device) = headers.last() {
                devices.push(read_folder(&folder, &device)?);
            }
        }
        Ok(devices)
    }

    fn folder_of(&self, device: &DeviceHeader) -> PathBuf {
        self.folder.join(folder_name(device))
    }
}

/// Everything that `folder` has of `device`.
fn read_folder(folder: &Path, device: &DeviceHeader) -> Result<Known, DatabaseError> {
    let mut table = CostTable::new(device.clone());
    let (segments, mut unreadable) = segments(folder)?;
    for segment in segments {
        unreadable.extend(segment.complaints());
        let merged: Option<Result<(), MergeError>> = segment.table.map(|other| table.merge(other));
        if let Some(Err(error)) = merged {
            unreadable.push(format!("{}: {error}", segment.path.display()));
        }
    }
    let warning = unreadable.first().map(|first| {
        let places = if unreadable.len() == 1 { "place" } else { "places" };
        format!(
            "the measurement database cannot be read in {} {places}, which are left as they are: {first}",
            unreadable.len()
        )
    });
    Ok(Known { table, warning })
}

/// Writes what `segments` have into as few files as possible, then removes them. Returns how many there are now.
fn compact_folder(segments: &[Segment]) -> Result<usize, DatabaseError> {
    let is_clean = segments.iter().all(|segment| segment.skipped.is_empty() && segment.table.is_some());
    if segments.len() < 2 && is_clean {
        return Ok(segments.len());
    }
    let mut tables: Vec<(CostTable, PathBuf)> = Vec::new();
    for segment in segments {
        let Some(other) = &segment.table else { continue };
        // A folder has one device, unless a file was copied into it.
        let device = folder_name(&other.device);
        match tables.iter_mut().find(|(table, _)| folder_name(&table.device) == device) {
            Some((table, newest)) => {
                table.merge(other.clone()).expect("measurements of one device");
                newest.clone_from(&segment.path);
            }
            None => tables.push((other.clone(), segment.path.clone())),
        }
    }
    for (table, newest) in &tables {
        // As old as the newest of its parts: what others add meanwhile is newer.
        write(&segment::successor(newest), &table.to_json_lines())?;
    }
    segments.iter().try_for_each(retire)?;
    Ok(tables.len())
}

/// Takes a segment away whose measurements stand elsewhere; under another name if there is more to it than those.
fn retire(segment: &Segment) -> Result<(), DatabaseError> {
    let path = &segment.path;
    let retired = match segment.skipped.is_empty() {
        true => fs::remove_file(path),
        false => fs::rename(path, path.with_extension("jsonl.unreadable")),
    };
    match retired {
        // Gone already: another process compacts, too, and has written the same.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        retired => retired.map_err(DatabaseError::at("retire", path)),
    }
}

fn write(path: &Path, text: &str) -> Result<(), DatabaseError> {
    write_atomically(path, |file| file.write_all(text.as_bytes())).map_err(DatabaseError::at("write", path))
}

/// Where measurements are kept unless somebody says otherwise: a folder in the user's cache, if there is one.
pub fn default_folder() -> Option<PathBuf> {
    // As the XDG base directory specification has it: a relative path counts as none.
    let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
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
