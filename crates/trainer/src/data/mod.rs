//! Labelled images on their way from disk into the first blob of a net.
//!
//! | step | type | what it does |
//! | --- | --- | --- |
//! | read | [`Dataset`]: [`ImageRecords`], [`ImageData`], [`StandIn`] | one sample as bytes (row, column, channel) |
//! | transform | [`Transform`] | resize, crop, mirror, (pixel - mean) * scale, as Caffe's `transform_param`, and what it lacks |
//! | assemble | [`Loader`] | whole mini-batches, in order or shuffled, prepared ahead by other threads |
//!
//! Everything random is a function of (seed, number of samples consumed so far): see [`Loader::position`]. A run that
//! is resumed from a position therefore sees exactly the numbers that the uninterrupted run would have seen.

mod augment;
mod batch;
mod decode;
mod image_data;
mod loader;
mod mean_file;
mod order;
mod prefetch;
mod records;
mod render;
mod resize;
mod stand_in;
mod survey;
#[cfg(test)]
mod tests;
mod transform;
mod unpack;

use crate::error::{NetError, Result};
pub use crate::spec::Phase;
use serde::Serialize;
use tensor::MemoryError;

pub use batch::LoaderOptions;
pub use decode::dimensions;
pub use image_data::{ImageData, check_images, is_image};
pub use loader::Loader;
pub use mean_file::read_mean;
pub use records::ImageRecords;
pub use render::{MOST_CLASSES, Rendering, render};
pub use stand_in::StandIn;
pub use survey::Survey;
pub use transform::{Transform, TransformScratch};
pub use unpack::{open_unpacked, sorted_entries, unpacked};

/// One image, as read: bytes, not yet transformed.
///
/// Reused from one [`Dataset::read_into`] to the next, so that the samples of a mini-batch take few allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Pixels in the order row, column, channel; `shape[0] * shape[1] * shape[2]` values. Three channels are red, green
    /// and blue: a [`Transform`] turns them round unless it is told otherwise, for Caffe takes its images from OpenCV,
    /// whose order is blue, green, red.
    pub pixels: Vec<u8>,
    /// Channels, height, width.
    pub shape: [usize; 3],
}

/// Largest label: labels travel as `f32`, as in Caffe, and up to 2^24 these are exact.
const MOST_LABEL: u32 = 1 << 24;

/// Makes `pixels` so many bytes, of any contents.
fn make_room(pixels: &mut Vec<u8>, bytes: usize) -> Result<(), MemoryError> {
    pixels.try_reserve_exact(bytes.saturating_sub(pixels.len())).map_err(|_| MemoryError::Host { bytes })?;
    pixels.resize(bytes, 0);
    Ok(())
}

/// What a data layer reads, for its reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DataSummary {
    /// Samples.
    pub images: usize,
    /// Classes.
    pub classes: usize,
    /// Their names, where they have some.
    pub class_names: Vec<String>,
    /// Whether mini-batches follow the order of a set that stands class by class, and do not hold all of it.
    pub is_by_class: bool,
}

/// What is true of a set as a whole. Of images of different sizes (no `new_height`) the first one answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatasetFacts {
    /// Number of samples, at least one.
    pub len: usize,
    /// Channels, height and width of a sample after decoding.
    pub shape: [usize; 3],
    /// Number of classes: by definition of the set, or its largest label + 1.
    pub classes: usize,
    /// Bytes that the set keeps in memory for as long as it lives.
    pub resident_bytes: u64,
    /// Bytes that reading a sample takes for a while, beside the sample: its file, and its pixels as they are decoded.
    pub reading_bytes: u64,
    /// Whether reading a sample is work (decoding a file) that pays to spread over threads.
    pub is_decoded: bool,
}

/// A finite, indexed set of labelled images. Reading is a pure function of the index, from any thread.
///
/// An `index` must be below [`DatasetFacts::len`]; a larger one is a mistake of the caller and panics.
pub trait Dataset: Send + Sync {
    /// What is true of the whole set.
    fn facts(&self) -> &DatasetFacts;

    /// The class of a sample, counted from 0.
    fn label(&self, index: usize) -> u32;

    /// The names of the classes, in the order of their labels; empty where the set has none.
    fn class_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// What a sample is called, wherever the set lies; empty where samples have no names.
    fn name(&self, _index: usize) -> &[u8] {
        &[]
    }

    /// Where a sample comes from, for error messages: file, and line or number in it.
    fn place(&self, index: usize) -> String;

    /// Reads a sample over the contents of `sample`.
    ///
    /// # Errors
    /// The file cannot be read or decoded.
    fn read_into(&self, index: usize, sample: &mut Sample) -> Result<()>;

    /// A number by which one set can be told from another: of names, labels and shape, and of all pixels where reading
    /// them is no work. Where the set lies does not matter.
    fn digest(&self) -> u32 {
        let mut crc = flate2::Crc::new();
        let DatasetFacts { len, shape, is_decoded, .. } = *self.facts();
        shape.into_iter().for_each(|extent| crc.update(&(extent as u64).to_le_bytes()));
        let mut sample = Sample::default();
        for index in 0..len {
            crc.update(&self.label(index).to_le_bytes());
            crc.update(self.name(index));
            if !is_decoded && self.read_into(index, &mut sample).is_ok() {
                crc.update(&sample.pixels);
            }
        }
        crc.sum()
    }

    /// Whether the samples stand class by class: a training that reads them in order sees one class at a time.
    fn is_by_class(&self) -> bool {
        let len = self.facts().len;
        (0..len).map(|index| self.label(index)).is_sorted() && self.label(0) != self.label(len - 1)
    }

    /// Verifies that every label is `ignored` or below `classes`, the number of outputs of the net's classifier.
    ///
    /// # Errors
    /// [`NetError::Refused`], naming the first sample that is out of range.
    fn check_labels(&self, classes: usize, ignored: Option<i32>) -> Result<()> {
        let is_class = |label: u32| (label as usize) < classes;
        let is_ignored = |label: u32| ignored.is_some_and(|ignored| i64::from(ignored) == i64::from(label));
        let mut labels = (0..self.facts().len).map(|index| (index, self.label(index)));
        let Some((index, label)) = labels.find(|&(_, label)| !is_class(label) && !is_ignored(label)) else {
            return Ok(());
        };
        let reason = format!("label {label} is out of range, the classes are 0 to {}", classes as i64 - 1);
        Err(NetError::at(self.place(index), reason))
    }
}
