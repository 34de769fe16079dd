//! Caffe's `ImageData` source, a text list of files and labels; and the folder-per-class layout of ImageNet.

use super::decode::{decode_into, dimensions};
use super::{Dataset, DatasetFacts, MOST_LABEL, NetError, Phase, Result, Sample, Transform, sorted_entries};
use crate::spec::{ImageDataParams, Mean, TransformParams};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// An image that is named, whether it can be read or not.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    pub(super) label: u32,
    /// Line in the list, counted from 1; 0 for an entry of a folder.
    line: usize,
}

/// JPEG and PNG files with labels; every sample is decoded when it is read.
#[derive(Clone, Debug)]
pub struct ImageData {
    entries: Vec<Entry>,
    /// The list, or the root folder.
    source: PathBuf,
    /// What paths are relative to.
    root: PathBuf,
    is_color: bool,
    facts: DatasetFacts,
}

impl ImageData {
    /// Opens a list of lines `path label`, the label being the last word (a path may have spaces in it). Paths are
    /// relative to `root`. Blank lines do not count. Images are red, green and blue if `is_color`, or grey.
    ///
    /// # Errors
    /// The list cannot be read or is empty, a line of it does not parse, or the first image cannot be read.
    pub fn open_list(list: &Path, root: &Path, is_color: bool) -> Result<Self> {
        Self::new(list_entries(list, root)?, (list, root), is_color)
    }

    /// Opens a folder that holds one folder per class; the classes are numbered in the order of their names. Files
    /// beside the class folders, and files whose names begin with a dot, do not count; any other file that is not JPEG
    /// or PNG by its name is an error, for silently dropped images are hard to find later.
    ///
    /// # Errors
    /// A folder cannot be read or holds no images, or the first image cannot be read.
    pub fn open_folder(root: &Path, is_color: bool) -> Result<Self> {
        let entries = folder_entries(root)?;
        if let Some(other) = entries.iter().find(|entry| !is_image(&entry.path) || entry.path.is_dir()) {
            let reason = "is not named like an image (.jpg, .jpeg, .png); move it out of its class folder";
            return Err(NetError::at(other.path.display(), reason));
        }
        Self::new(entries, (root, root), is_color)
    }

    /// Opens files whose labels are not known; they are 0.
    ///
    /// # Errors
    /// There are none, or the first cannot be read.
    pub fn open_files(files: &[PathBuf], is_color: bool) -> Result<Self> {
        let entries = files.iter().map(|path| Entry { path: path.clone(), label: 0, line: 0 });
        Self::new(entries.collect(), (Path::new(""), Path::new("")), is_color)
    }

    fn new(entries: Vec<Entry>, (source, root): (&Path, &Path), is_color: bool) -> Result<Self> {
        let Some(Entry { path, .. }) = entries.first() else {
            return Err(NetError::at(source.display(), "lists no images"));
        };
        // Read the first header even if its size is of no interest: a wrong root_folder shows before any training.
        let (first, packed) = (dimensions(path), fs::metadata(path).map_or(0, |file| file.len()));
        let (channels, [source, root]) = (if is_color { 3 } else { 1 }, [source, root].map(Path::to_owned));
        let mut set = Self { entries, source, root, is_color, facts: DatasetFacts::default() };
        let [height, width] = first.map_err(|reason| NetError::at(set.place(0), reason))?;
        let paths: usize = set.entries.iter().map(|entry| entry.path.capacity()).sum();
        set.facts = DatasetFacts {
            len: set.entries.len(),
            shape: [channels, height, width],
            classes: set.entries.iter().map(|entry| entry.label as usize + 1).max().unwrap_or(0),
            resident_bytes: (set.entries.capacity() * size_of::<Entry>() + paths) as u64,
            // The file and its pixels, all three channels.
            reading_bytes: packed + 3 * (height * width) as u64,
            is_decoded: true,
        };
        Ok(set)
    }
}

impl Dataset for ImageData {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn label(&self, index: usize) -> u32 {
        self.entries[index].label
    }

    fn class_names(&self) -> Vec<String> {
        class_names(&self.entries, self.facts.classes)
    }

    fn name(&self, index: usize) -> &[u8] {
        let path = &self.entries[index].path;
        path.strip_prefix(&self.root).unwrap_or(path).as_os_str().as_encoded_bytes()
    }

    fn place(&self, index: usize) -> String {
        let Entry { path, line, .. } = &self.entries[index];
        match line {
            0 => path.display().to_string(),
            line => format!("{} ({}:{line})", path.display(), self.source.display()),
        }
    }

    fn read_into(&self, index: usize, sample: &mut Sample) -> Result<()> {
        let decoded = decode_into(&self.entries[index].path, self.is_color, sample);
        decoded.map_err(|reason| NetError::at(self.place(index), reason))
    }
}

/// Reads all `images` as `params` say: of each, why it cannot be read, or is too small for the crop.
pub fn check_images(images: &[PathBuf], params: &ImageDataParams) -> Vec<Result<()>> {
    let transform = TransformParams { mean: Mean::Zero, std: Vec::new(), ..params.transform.clone() };
    let check = |sample: &mut Sample, image: &PathBuf| {
        let set = ImageData::open_files(std::slice::from_ref(image), params.is_color)?;
        let fits = Transform::new(&transform, set.facts().shape, Phase::Test);
        fits.map_err(|error| NetError::at(image.display(), error))?;
        set.read_into(0, sample)
    };
    images.par_iter().map_init(Sample::default, check).collect()
}

/// The images of a list, whose paths are relative to `root`.
pub(super) fn list_entries(list: &Path, root: &Path) -> Result<Vec<Entry>> {
    let text = fs::read_to_string(list).map_err(NetError::read(list))?;
    // Editors on Windows like to start a file with a byte-order mark.
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(number, line)| parse_line(list, number + 1, line, root)).collect()
}

/// The files of the class folders in `root`, whatever they are.
pub(super) fn folder_entries(root: &Path) -> Result<Vec<Entry>> {
    let mut classes = sorted_entries(root)?;
    classes.retain(|path| path.is_dir());
    if classes.is_empty() {
        return Err(NetError::at(root.display(), "holds no folder per class, nor is it a list of images"));
    }
    let mut entries = Vec::new();
    for (label, class) in classes.iter().enumerate() {
        let files = sorted_entries(class)?;
        if files.is_empty() {
            return Err(NetError::at(class.display(), "this class has no images"));
        }
        entries.extend(files.into_iter().map(|path| Entry { path, label: label as u32, line: 0 }));
    }
    Ok(entries)
}

/// The names of the folders of all `classes`, if all images of each lie in one of its own, as in lists of ImageNet.
pub(super) fn class_names(entries: &[Entry], classes: usize) -> Vec<String> {
    let mut folders = BTreeMap::new();
    for entry in entries {
        let folder = entry.path.parent();
        if *folders.entry(entry.label).or_insert(folder) != folder {
            return Vec::new();
        }
    }
    let name =
        |folder: &Option<&Path>| Some(folder.and_then(Path::file_name)?.to_string_lossy().into_owned());
    let names: Vec<String> = folders.values().filter_map(name).collect();
    let is_own = names.iter().collect::<BTreeSet<_>>().len() == classes;
    if is_own { names } else { Vec::new() }
}

fn parse_line(list: &Path, number: usize, line: &str, root: &Path) -> Result<Entry> {
    let error = |reason| NetError::at(format!("{}:{number}", list.display()), reason);
    let line = line.trim();
    let (path, label) = line
        .rsplit_once(char::is_whitespace)
        .ok_or_else(|| error(format!("expected a path and a label, found {line:?}")))?;
    let valid = label.parse().ok().filter(|&label| label <= MOST_LABEL);
    let label = valid.ok_or_else(|| {
        error(format!("the label must be a whole number from 0 to {MOST_LABEL}, found {label:?}"))
    })?;
    Ok(Entry { path: root.join(path.trim_end()), label, line: number })
}

/// Whether a file is named like an image.
pub fn is_image(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
    ["jpg", "jpeg", "png"].iter().any(|known| ending == *known)
}
