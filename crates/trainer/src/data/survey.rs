//! A look at somebody's own images before a net is made for them: what can be read, of which classes, how light and
//! colourful it is, and what is kept for validation.

use super::image_data::{Entry, class_names, folder_entries, is_image, list_entries};
use super::{NetError, Result, Sample, decode::decode_into, order::below, sorted_entries};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use tensor::rng;

/// Names of a folder beside `train` that holds what to validate with.
const VALIDATION: [&str; 4] = ["val", "valid", "validation", "test"];

/// What a folder or a list of images holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// The folder that the paths in the lists are relative to, from the root of all files.
    pub root: PathBuf,
    /// Names of the classes in the order of their labels, as a terminal may show them; empty where they have none.
    pub names: Vec<String>,
    /// Classes.
    pub classes: usize,
    /// Images to train with, one `path label` per line, and how many.
    pub train: (String, usize),
    /// Images to validate with, likewise.
    pub validation: (String, usize),
    /// The folder that has these, if they have one of their own.
    pub own_folder: Option<PathBuf>,
    /// The classes that none of these is of, if there are any at all.
    pub unvalidated: Vec<String>,
    /// Files that are left out, and why.
    pub unreadable: Vec<String>,
    /// Mean over the images to train with of blue, green and red, from 0 to 255.
    pub mean: [f64; 3],
    /// Standard deviation of the same.
    pub std: [f64; 3],
}

/// Sums over the pixels of an image, of red, green and blue, in whole numbers: their order does not matter.
#[derive(Clone, Copy, Default)]
struct Sums {
    pixels: u64,
    values: [u64; 3],
    squares: [u64; 3],
}

/// An image that can be read, with its sums.
type Looked = (Entry, Sums);

impl Survey {
    /// Reads all images of `source`: a folder of class folders, one with folders `train` and `val` (or `valid`,
    /// `validation`, `test`) of these, or `train` alone, or a list. Of each class the part `validation`, drawn by `seed`,
    /// is kept to validate with, a tenth if nobody says so, unless there is a folder for that. `progress` is told after
    /// each file how many there are, from several threads.
    ///
    /// # Errors
    /// The source cannot be read, has fewer than two classes or none of some label below the largest, or has a folder
    /// to validate with and a part is asked for, or that is not from 0 to 1; no image of a class or to validate with can be read, or, if `strict`,
    /// one cannot.
    pub fn new(
        source: &Path,
        (validation, seed): (Option<f64>, u64),
        strict: bool,
        progress: impl Fn(usize) + Sync,
    ) -> Result<Self> {
        if validation.is_some_and(|part| !(0.0..=1.0).contains(&part)) {
            return Err(NetError::at(source.display(), "the part to validate with is not from 0 to 1"));
        }
        let given = if source.is_dir() { source } else { source.parent().unwrap_or(Path::new("")) };
        // Files are called what the user calls them; a net, which lies elsewhere, is told where they are.
        let root = std::path::absolute(Path::new(".").join(given)).map_err(NetError::read(given))?;
        if root.to_str().is_none() {
            return Err(NetError::at(root.display(), "a net cannot hold a name with such characters"));
        }
        let (parts, own_folder) = parts(source, given)?;
        if validation.is_some() && !parts[1].is_empty() {
            let reason = "has a folder to validate with, so that no part is to be kept for that";
            return Err(NetError::at(source.display(), reason));
        }
        // The classes are those of all files: one whose files cannot be read does not go without a word.
        let listed: BTreeSet<u32> = parts[0].iter().map(|entry| entry.label).collect();
        let classes = listed.last().map_or(0, |last| last + 1);
        if let Some(missing) = (0..classes.max(2)).find(|class| !listed.contains(class)) {
            let numbers = "classes are 0, 1 and so on without a gap";
            let reason = match (listed.first(), missing) {
                (None, _) => "lists no images".to_owned(),
                (Some(first), 0) => format!("its labels begin at {first}; {numbers}"),
                (_, 1) if classes == 1 => {
                    let names = class_names(&parts[0], 1);
                    format!("there is only one class, {}", names.first().map_or("0", String::as_str))
                }
                _ => format!("has no images of class {missing} to train with; {numbers}"),
            };
            return Err(NetError::at(source.display(), reason));
        }
        let [files, own] = [&parts[..], &parts[1..]].map(|parts| parts.iter().map(Vec::len).sum::<usize>());
        let mut unreadable = Vec::new();
        let [mut train, mut held] =
            parts.map(|entries| look_at(entries, given, &|| progress(files), &mut unreadable));
        if let Some((_, first)) = unreadable.first().filter(|_| strict || unreadable.len() == files) {
            let reason = format!("{first} ({} of {files} files cannot be used)", unreadable.len());
            return Err(NetError::Refused(reason));
        }
        let present = labels(&train);
        if let Some((entry, first)) = unreadable.iter().find(|(entry, _)| !present.contains(&entry.label)) {
            let folder = entry.path.parent().filter(|_| source.is_dir());
            let class =
                folder.map_or(format!("class {}", entry.label), |folder| folder.display().to_string());
            return Err(NetError::at(class, format!("no image to train with can be used; {first}")));
        }
        if held.is_empty() {
            if let Some((_, last)) = unreadable.last().filter(|_| own > 0) {
                let reason = format!("no image to validate with can be used; {last}");
                return Err(NetError::at(source.display(), reason));
            }
            (train, held) = split(train, validation.unwrap_or(0.1), seed);
        }
        let (mean, std) = statistics(&train);
        let validated = labels(&held);
        let [train, validation] =
            [train, held].map(|part| part.into_iter().map(|(entry, _)| entry).collect::<Vec<_>>());
        let names = class_names(&train, classes as usize);
        let unvalidated = (0..classes).filter(|class| !validated.is_empty() && !validated.contains(class));
        let name = |class: u32| names.get(class as usize).cloned().unwrap_or_else(|| class.to_string());
        let unvalidated = unvalidated.map(name).collect();
        let list = |part: &[Entry]| (part.iter().flat_map(|entry| line(entry, given)).collect(), part.len());
        let (classes, train, validation) = (classes as usize, list(&train), list(&validation));
        let unreadable = unreadable.into_iter().map(|(_, reason)| reason).collect();
        Ok(Self { root, names, classes, train, validation, own_folder, unvalidated, unreadable, mean, std })
    }
}

/// The labels of images.
fn labels(images: &[Looked]) -> BTreeSet<u32> {
    images.iter().map(|(entry, _)| entry.label).collect()
}

/// The files to train with, and those to validate with if they have a folder of their own, and that.
fn parts(source: &Path, root: &Path) -> Result<([Vec<Entry>; 2], Option<PathBuf>)> {
    let train = source.join("train");
    let own = VALIDATION.map(|name| source.join(name)).into_iter().find(|folder| folder.is_dir());
    let Some(own) = own.filter(|_| train.is_dir()) else {
        // A folder `train` of photos is a class.
        let is_whole = sorted_entries(&train).is_ok_and(|inside| {
            inside.iter().any(|path| path.is_dir()) && !inside.iter().any(|path| is_image(path))
        });
        let folder = if is_whole { &train } else { source };
        let entries = if source.is_dir() { folder_entries(folder)? } else { list_entries(source, root)? };
        return Ok(([entries, Vec::new()], None));
    };
    let (train, mut held) = (folder_entries(&train)?, folder_entries(&own)?);
    let class = |entry: &Entry| entry.path.parent().and_then(Path::file_name).map(OsStr::to_owned);
    let labels: BTreeMap<_, u32> = train.iter().map(|entry| (class(entry), entry.label)).collect();
    for entry in &mut held {
        let label = labels.get(&class(entry)).copied();
        let unknown = || NetError::at(entry.path.display(), "train has no folder of this class");
        entry.label = label.ok_or_else(unknown)?;
    }
    Ok(([train, held], Some(own)))
}

/// Reads the images of `entries`; those that cannot be used go to `unreadable` with the reason.
fn look_at(
    entries: Vec<Entry>,
    root: &Path,
    progress: &(impl Fn() + Sync),
    unreadable: &mut Vec<(Entry, String)>,
) -> Vec<Looked> {
    let look = |sample: &mut Sample, entry: Entry| {
        progress();
        let decoded = match line(&entry, root) {
            Some(_) => decode_into(&entry.path, true, sample),
            None => Err("a list cannot hold a name with such characters".to_owned()),
        };
        match decoded {
            Ok(()) => Ok((entry, Sums::of(&sample.pixels))),
            Err(reason) => {
                let reason = format!("{}: {reason}", entry.path.display());
                Err((entry, reason))
            }
        }
    };
    let looked: Vec<_> = entries.into_par_iter().map_init(Sample::default, look).collect();
    looked.into_iter().filter_map(|image| image.map_err(|reason| unreadable.push(reason)).ok()).collect()
}

impl Sums {
    /// Of pixels of red, green and blue.
    fn of(pixels: &[u8]) -> Self {
        let mut sums = Self { pixels: pixels.len() as u64 / 3, ..Self::default() };
        for pixel in pixels.as_chunks::<3>().0 {
            for (channel, value) in pixel.map(u64::from).into_iter().enumerate() {
                sums.values[channel] += value;
                sums.squares[channel] += value * value;
            }
        }
        sums
    }
}

/// Draws the part `validation` of every class that has two images, but not all of any.
fn split(images: Vec<Looked>, validation: f64, seed: u64) -> (Vec<Looked>, Vec<Looked>) {
    let mut of_class: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, (entry, _)) in images.iter().enumerate() {
        of_class.entry(entry.label).or_default().push(index);
    }
    let mut drawn = BTreeSet::new();
    for (label, mut members) in of_class {
        let mut rng = rng::stream(seed, label.into());
        let part = (members.len() as f64 * validation).round() as usize;
        let least = usize::from(validation > 0.0);
        for _ in 0..part.max(least).min(members.len() - 1) {
            drawn.insert(members.swap_remove(below(&mut rng, members.len())));
        }
    }
    let mut indices = 0..;
    images.into_iter().partition(|_| !indices.next().is_some_and(|index| drawn.contains(&index)))
}

/// Mean and standard deviation over all pixels of blue, green and red.
fn statistics(images: &[Looked]) -> ([f64; 3], [f64; 3]) {
    let sum = |part: &dyn Fn(&Sums) -> u64| {
        images.iter().map(|(_, sums)| u128::from(part(sums))).sum::<u128>() as f64
    };
    let pixels = sum(&|sums| sums.pixels);
    let bgr = [2, 1, 0];
    let mean = bgr.map(|channel| sum(&|sums| sums.values[channel]) / pixels);
    let squares = bgr.map(|channel| sum(&|sums| sums.squares[channel]) / pixels);
    // Pictures of one colour have none: a byte's rounding has at least this.
    let std = std::array::from_fn(|at| (squares[at] - mean[at] * mean[at]).max(1.0 / 12.0).sqrt());
    (mean, std)
}

/// The line of a list that names an image, if one can.
fn line(entry: &Entry, root: &Path) -> Option<String> {
    let path = entry.path.strip_prefix(root).unwrap_or(&entry.path).to_str();
    let path = path.filter(|path| path.trim() == *path && !path.contains(['\n', '\r']))?;
    Some(format!("{path} {}\n", entry.label))
}
