//! What can be wrong with data: one clear sentence each, with the file, the line or the value in it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a data set cannot be opened, read or fed to a net.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file or folder is missing or not readable, or a gzip stream in it is damaged or cut short.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system, or the decompressor, says.
        source: io::Error,
    },
    /// A file or folder is not what it is used as.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file or folder.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// A binary file is shorter or longer than it says itself.
    #[error(
        "{} must hold {expected} bytes for what its header announces, but holds {}",
        path.display(), if found > expected { "more".to_owned() } else { found.to_string() }
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes (after decompression) by the header.
        expected: u64,
        /// Bytes (after decompression) found; one more than expected where there are more.
        found: u64,
    },
    /// The two files of an IDX pair do not belong together.
    #[error("{} holds {images} images, but {} holds {labels} labels", images_path.display(), labels_path.display())]
    Counts {
        /// The file of images.
        images_path: PathBuf,
        /// Images in it.
        images: usize,
        /// The file of labels.
        labels_path: PathBuf,
        /// Labels in it.
        labels: usize,
    },
    /// A label is not below the number of classes.
    #[error("{place}: label {label} is out of range, the classes are 0 to {}", *classes as i64 - 1)]
    Label {
        /// The sample, as [`Dataset::place`](super::Dataset::place) names it.
        place: String,
        /// Its label.
        label: u32,
        /// Number of classes.
        classes: usize,
    },
    /// A line of an image list does not read as a path and a label.
    #[error("{}:{line}: {reason}", path.display())]
    List {
        /// The list.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// What is wrong with the line.
        reason: String,
    },
    /// An image cannot be read or decoded.
    #[error("{place}: {reason}")]
    Image {
        /// The image, as [`Dataset::place`](super::Dataset::place) names it.
        place: String,
        /// What the system or the decoder says.
        reason: String,
    },
    /// A sample does not fit the transformation.
    #[error("{place}: {misfit}")]
    Sample {
        /// The sample, as [`Dataset::place`](super::Dataset::place) names it.
        place: String,
        /// How it does not fit.
        misfit: Misfit,
    },
    /// The system refuses a background thread.
    #[error("no thread can be started to load data: {0}")]
    Thread(io::Error),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] tensor::MemoryError),
    /// The settings of a transformation or loader contradict themselves or the data set.
    #[error("{0}")]
    Options(String),
}

/// How a sample does not fit a [`Transform`](super::Transform).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// The number of channels differs from that of the net's input.
    #[error("the image has {found} channels where {expected} are expected")]
    Channels {
        /// Channels of the net's input.
        expected: usize,
        /// Channels of the sample.
        found: usize,
    },
    /// Smaller than the crop.
    #[error("the image is {height}x{width}, too small for crop_size {crop}")]
    Crop {
        /// Side of the crop.
        crop: usize,
        /// Height of the sample.
        height: usize,
        /// Width of the sample.
        width: usize,
    },
    /// Images of different sizes, and neither resized nor cropped to a common one.
    #[error(
        "the image is {}x{} where {}x{} is expected; resize all images to one size (new_height, new_width) or crop them (crop_size)",
        found[0], found[1], expected[0], expected[1]
    )]
    Size {
        /// Height and width that the first image had.
        expected: [usize; 2],
        /// Height and width of this one.
        found: [usize; 2],
    },
    /// The mean image is of another shape.
    #[error("the image is {}x{}x{} but the mean image is {}x{}x{}", found[0], found[1], found[2], expected[0], expected[1], expected[2])]
    Mean {
        /// Channels, height and width of the mean image.
        expected: [usize; 3],
        /// Channels, height and width of the sample.
        found: [usize; 3],
    },
    /// There is not enough memory to resize it.
    #[error(transparent)]
    Memory(tensor::MemoryError),
}

impl DataError {
    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }

    pub(super) fn format(path: &Path, reason: impl Into<String>) -> Self {
        Self::Format { path: path.to_owned(), reason: reason.into() }
    }
}
