//! Caffe's `ImageData` source, a text list of files and labels; and the folder-per-class layout of ImageNet.

use std::fs;
use std::path::{Path, PathBuf};

use super::decode::{Decoding, decode_into, dimensions};
use super::{DataError, Dataset, MOST_LABEL, Sample};

/// How the images of an [`ImageData`] are found and decoded; fields as in Caffe's `image_data_param`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageOptions {
    /// Folder that the paths of a list are relative to; the current one if empty.
    pub root_folder: PathBuf,
    /// Height to resize to; 0 keeps each image's own. Set both or neither.
    pub new_height: usize,
    /// Width to resize to; 0 keeps each image's own.
    pub new_width: usize,
    /// Three channels (blue, green, red), or one.
    pub is_color: bool,
}

impl Default for ImageOptions {
    fn default() -> Self {
        Self { root_folder: PathBuf::new(), new_height: 0, new_width: 0, is_color: true }
    }
}

impl ImageOptions {
    fn decoding(&self) -> Result<Decoding, DataError> {
        let size = match (self.new_height, self.new_width) {
            (0, 0) => None,
            (height, width) if height > 0 && width > 0 => Some([height, width]),
            (height, width) => {
                return Err(DataError::Options(format!(
                    "new_height {height} and new_width {width} must both be set or both be 0"
                )));
            }
        };
        Ok(Decoding { is_color: self.is_color, size })
    }
}

#[derive(Clone, Debug)]
struct Entry {
    path: PathBuf,
    label: u32,
    /// Line in the list, counted from 1; 0 for an entry of a folder.
    line: usize,
}

/// JPEG and PNG files with labels; every sample is decoded when it is read.
#[derive(Clone, Debug)]
pub struct ImageData {
    entries: Vec<Entry>,
    /// The list, or the root folder.
    source: PathBuf,
    decoding: Decoding,
    shape: [usize; 3],
    classes: usize,
    /// Of the first image: its file and its pixels, all three channels.
    reading_bytes: u64,
}

impl ImageData {
    /// Opens a list of lines `path label`, the label being the last word (a path may have spaces in it). Blank lines do
    /// not count.
    ///
    /// # Errors
    /// The list cannot be read or is empty, a line of it does not parse, or the first image cannot be read.
    pub fn open_list(list: &Path, options: &ImageOptions) -> Result<Self, DataError> {
        let text = fs::read_to_string(list).map_err(DataError::read(list))?;
        let mut entries = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            entries.push(parse_line(list, number + 1, line, &options.root_folder)?);
        }
        let classes = entries.iter().map(|entry| entry.label as usize + 1).max().unwrap_or(0);
        Self::new(entries, list, options, classes)
    }

    /// Opens a folder that holds one folder per class; the classes are numbered in the order of their names. Files
    /// beside the class folders, and files whose names begin with a dot, do not count; any other file that is not JPEG
    /// or PNG by its name is an error, for silently dropped images are hard to find later.
    ///
    /// # Errors
    /// A folder cannot be read or holds no images, or the first image cannot be read.
    pub fn open_folder(root: &Path, options: &ImageOptions) -> Result<Self, DataError> {
        let mut classes = sorted_entries(root)?;
        classes.retain(|path| path.is_dir());
        if classes.is_empty() {
            return Err(DataError::format(root, "holds no folder per class"));
        }
        let mut entries = Vec::new();
        for (label, class) in classes.iter().enumerate() {
            let files = sorted_entries(class)?;
            if files.is_empty() {
                return Err(DataError::format(class, "this class has no images"));
            }
            for path in files {
                check_extension(&path)?;
                entries.push(Entry { path, label: label as u32, line: 0 });
            }
        }
        Self::new(entries, root, options, classes.len())
    }

    fn new(
        entries: Vec<Entry>,
        source: &Path,
        options: &ImageOptions,
        classes: usize,
    ) -> Result<Self, DataError> {
        if entries.is_empty() {
            return Err(DataError::format(source, "lists no images"));
        }
        let decoding = options.decoding()?;
        let channels = if options.is_color { 3 } else { 1 };
        let (source, shape) = (source.to_owned(), [channels, 0, 0]);
        let mut set = Self { entries, source, decoding, shape, classes, reading_bytes: 0 };
        // Read the first header even if its size is of no interest: a wrong root_folder shows before any training.
        let first = dimensions(&set.entries[0].path).map_err(|reason| set.image_error(0, reason))?;
        let packed = fs::metadata(&set.entries[0].path).map_or(0, |file| file.len());
        set.reading_bytes = packed + 3 * (first[0] * first[1]) as u64;
        let [height, width] = decoding.size.unwrap_or(first);
        set.shape = [channels, height, width];
        Ok(set)
    }

    fn image_error(&self, index: usize, reason: String) -> DataError {
        DataError::Image { place: self.place(index), reason }
    }
}

impl Dataset for ImageData {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn shape(&self) -> [usize; 3] {
        self.shape
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn label(&self, index: usize) -> u32 {
        self.entries[index].label
    }

    /// Those of a folder: a list has numbers only.
    fn class_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.line == 0) {
            if entry.label as usize == names.len() {
                let folder = entry.path.parent().and_then(Path::file_name).unwrap_or_default();
                names.push(folder.to_string_lossy().into_owned());
            }
        }
        names
    }

    fn place(&self, index: usize) -> String {
        let Entry { path, line, .. } = &self.entries[index];
        match line {
            0 => path.display().to_string(),
            line => format!("{} ({}:{line})", path.display(), self.source.display()),
        }
    }

    fn read_into(&self, index: usize, sample: &mut Sample) -> Result<(), DataError> {
        let entry = &self.entries[index];
        sample.label = entry.label;
        decode_into(&entry.path, self.decoding, sample).map_err(|reason| self.image_error(index, reason))
    }

    fn resident_bytes(&self) -> u64 {
        let paths: usize = self.entries.iter().map(|entry| entry.path.capacity()).sum();
        (self.entries.capacity() * size_of::<Entry>() + paths) as u64
    }

    fn reading_bytes(&self) -> u64 {
        self.reading_bytes
    }

    fn is_decoded(&self) -> bool {
        true
    }
}

fn parse_line(list: &Path, number: usize, line: &str, root: &Path) -> Result<Entry, DataError> {
    let error = |reason: String| DataError::List { path: list.to_owned(), line: number, reason };
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

/// The entries of a folder in the order of their names, without hidden ones.
fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = fs::read_dir(folder).map_err(DataError::read(folder))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    let mut paths = paths.map_err(DataError::read(folder))?;
    let hidden =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    paths.retain(|path| !hidden(path));
    paths.sort();
    Ok(paths)
}

fn check_extension(path: &Path) -> Result<(), DataError> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("jpg" | "jpeg" | "png") if !path.is_dir() => Ok(()),
        _ => Err(DataError::format(
            path,
            "is not named like an image (.jpg, .jpeg, .png); move it out of its class folder",
        )),
    }
}
