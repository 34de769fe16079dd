//! Where the snapshots of a training go: tried before it starts, and kept for it alone.

use super::{NetError, Result, load_solver_state, state_path, weights_path};
use files::{Claimed, claim, remove_abandoned, try_writing};
use std::path::{Path, PathBuf};
use std::{collections::BTreeSet, fs};

/// A prefix under which snapshots can be written, by no other process as long as this lives.
#[derive(Debug)]
pub struct SnapshotPlace {
    prefix: PathBuf,
    claimed: Claimed,
}

impl SnapshotPlace {
    /// Makes the folder of `prefix`, tries whether a snapshot of iteration `last` could be written, removes what
    /// trainings that have died there left half written, and keeps the prefix for this process.
    ///
    /// # Errors
    /// [`NetError::Refused`] if no snapshot could be written, or another training writes there.
    pub fn open(prefix: &Path, last: u64) -> Result<Self> {
        let longest = state_path(prefix, last);
        let error = NetError::file("no snapshot can be written as", &longest);
        let (folder, stem) = folder_and_stem(prefix);
        fs::create_dir_all(&folder).map_err(&error)?;
        try_writing(&longest).map_err(error)?;
        let claimed = claim(&folder.join(format!(".{stem}.lock")));
        if let Claimed::Taken(holder) = &claimed {
            let prefix = prefix.display();
            return Err(NetError::Refused(format!(
                "another training ({holder}) writes its snapshots as {prefix}_iter_N; this one needs another \
                 --snapshot-prefix"
            )));
        }
        remove_abandoned(&folder, |name| iteration(&stem, name).is_some());
        Ok(Self { prefix: prefix.to_owned(), claimed })
    }

    /// What a user should know before a training writes here that begins after iteration `first`, one sentence each: of
    /// snapshots that are there already, and of a file system without locks.
    pub fn notes(&self, first: u64) -> Vec<String> {
        let prefix = self.prefix.display();
        let mut earlier = iterations(&self.prefix);
        let later = earlier.split_off(&(first + 1));
        let there = match (later.first(), later.last()) {
            (Some(one), Some(last)) if one == last => Some(format!("{prefix}_iter_{one} is")),
            (Some(first), Some(last)) => Some(format!("{prefix}_iter_{first} to {last} are")),
            _ => None,
        };
        let there = there.map(|are| {
            format!(
                "{are} there from an earlier training; snapshots of the same iterations will replace theirs"
            )
        });
        let doubt = match &self.claimed {
            Claimed::Unknown(doubt) => Some(format!(
                "another training with the snapshot prefix {prefix} would not be noticed: {doubt}"
            )),
            _ => None,
        };
        there.into_iter().chain(doubt).collect()
    }

    /// The iterations of the snapshots up to `last`, which is one of them, of one training: those of another that began
    /// here before have another seed or other settings.
    pub fn earlier(&self, last: u64) -> BTreeSet<u64> {
        let training = |at: u64| {
            let (state, _) = load_solver_state(&state_path(&self.prefix, at)).ok()?;
            Some((state.random_seed, state.settings))
        };
        let (own, all) = (training(last), iterations(&self.prefix).into_iter());
        all.filter(|&at| at <= last && training(at) == own).collect()
    }

    /// Removes what there is of the snapshot of an iteration.
    ///
    /// # Errors
    /// [`NetError::Refused`].
    pub fn remove(&self, iteration: u64) -> Result<()> {
        // The state first: what is without one is no snapshot.
        for path in [state_path(&self.prefix, iteration), weights_path(&self.prefix, iteration)] {
            if path.exists() {
                fs::remove_file(&path).map_err(NetError::file("cannot remove the snapshot", &path))?;
            }
        }
        Ok(())
    }
}

/// The folder of the snapshots of `prefix`, and their names up to `_iter_`.
fn folder_and_stem(prefix: &Path) -> (PathBuf, String) {
    let example = state_path(prefix, 0);
    let name = example.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.rsplit_once("_iter_").map_or("", |(stem, _)| stem).to_owned();
    let folder = example.parent().filter(|folder| !folder.as_os_str().is_empty());
    (folder.unwrap_or(Path::new(".")).to_owned(), stem)
}

/// The iterations that have a file of a snapshot of `prefix`.
fn iterations(prefix: &Path) -> BTreeSet<u64> {
    let (folder, stem) = folder_and_stem(prefix);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| iteration(&stem, &entry.file_name().to_string_lossy())).collect()
}

/// The solver state of the newest whole snapshot of `prefix`, if any, and what is wrong with newer ones, a sentence each.
///
/// # Errors
/// An earlier training went further than the one that wrote last.
pub fn newest(prefix: &Path) -> Result<(Option<PathBuf>, Vec<String>)> {
    let mut damaged = Vec::new();
    // Weights alone are those of a training that ended between its two files.
    let states = iterations(prefix).into_iter().map(|at| state_path(prefix, at)).filter(|path| path.exists());
    let states: Vec<PathBuf> = states.collect();
    let mut by_time = states.clone();
    // Of one time, which may be as coarse as seconds, the furthest is the last.
    by_time.sort_by_cached_key(|path| fs::metadata(path).and_then(|file| file.modified()).ok());
    while let Some(path) = by_time.pop() {
        if let Err(error) = check(&path) {
            damaged.push(error.to_string());
            continue;
        }
        let further =
            states.iter().rev().take_while(|other| **other != path).find(|other| check(other).is_ok());
        let Some(further) = further else { return Ok((Some(path), damaged)) };
        let [path, further] = [&path, further].map(|path| path.display());
        return Err(NetError::Refused(format!(
            "{path} was written after {further}: move the one of another training away, or name one by --snapshot"
        )));
    }
    Ok((None, damaged))
}

/// Whether a solver state and its weights are whole.
fn check(path: &Path) -> Result<()> {
    load_solver_state(path)?.0.weights(path).map(drop)
}

/// The iteration of a snapshot whose file is called `name`, if that begins with `stem`.
fn iteration(stem: &str, name: &str) -> Option<u64> {
    let rest = name.strip_prefix(stem)?.strip_prefix("_iter_")?.strip_suffix(".safetensors")?;
    rest.strip_suffix(".solverstate").unwrap_or(rest).parse().ok()
}
