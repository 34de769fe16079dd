//! The IDX format of MNIST and its relatives: one file of images, one of labels, each plain or gzipped.
//!
//! Layout (big-endian): two zero bytes, the element type (8 = unsigned byte), the number of dimensions, then each
//! dimension as a `u32`, then the elements. Images have three dimensions (magic number 0x803), labels one (0x801).
//! Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits".

use super::{DataError, Dataset, Phase, Sample, open_unpacked, sorted_entries};
use std::{
    ffi::OsStr,
    io::Read,
    path::{Path, PathBuf},
};

const IMAGES_MAGIC: u32 = 0x803;
const LABELS_MAGIC: u32 = 0x801;

/// Grey images and labels of an IDX pair, held in memory.
#[derive(Clone, Debug)]
pub struct Idx {
    pixels: Vec<u8>,
    labels: Vec<u8>,
    shape: [usize; 3],
    labels_path: PathBuf,
}

impl Idx {
    /// Opens a file of images and the file of its labels; each may be gzipped, whatever its name.
    ///
    /// # Errors
    /// Either file is unreadable, not IDX, truncated or too long, or the two differ in their count.
    pub fn open(images: &Path, labels: &Path) -> Result<Self, DataError> {
        Self::read(images, open_unpacked(images).map_err(DataError::read(images))?, labels)
    }

    /// As [`Idx::open`], with the unpacked bytes of `images`.
    pub(super) fn read(images: &Path, bytes: impl Read, labels: &Path) -> Result<Self, DataError> {
        let ([count, height, width], pixels) = read_idx::<3>(images, bytes, IMAGES_MAGIC, "images")?;
        let bytes = open_unpacked(labels).map_err(DataError::read(labels))?;
        let ([label_count], label_bytes) = read_idx::<1>(labels, bytes, LABELS_MAGIC, "labels")?;
        if count != label_count {
            let (images, labels) = (images.display(), labels.display());
            let reason = format!("{images} holds {count} images, but {labels} holds {label_count} labels");
            return Err(DataError::Invalid(reason));
        }
        if pixels.is_empty() {
            let reason = format!("holds no pixels ({count} images of {height}x{width})");
            return Err(DataError::at(images.display(), reason));
        }
        Ok(Self { pixels, labels: label_bytes, shape: [1, height, width], labels_path: labels.to_owned() })
    }
}

impl Dataset for Idx {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn shape(&self) -> [usize; 3] {
        self.shape
    }

    fn classes(&self) -> usize {
        self.labels.iter().max().map_or(0, |&label| usize::from(label) + 1)
    }

    fn label(&self, index: usize) -> u32 {
        u32::from(self.labels[index])
    }

    fn place(&self, index: usize) -> String {
        format!("{} (sample {index})", self.labels_path.display())
    }

    fn read_into(&self, index: usize, sample: &mut Sample) -> Result<(), DataError> {
        let [_, height, width] = self.shape;
        let bytes = height * width;
        sample.set(&self.pixels[index * bytes..][..bytes], self.shape, self.label(index));
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        (self.pixels.capacity() + self.labels.capacity()) as u64
    }
}

/// True if the bytes begin like a file of IDX images.
pub(super) fn is_idx_images(head: &[u8]) -> bool {
    head.get(..4) == Some(&IMAGES_MAGIC.to_be_bytes())
}

/// Largest height or width that a header alone is believed.
const MOST_PIXELS: usize = 1 << 16;

/// Channels, height and width of the images in a file, by its header; `None` if it is no IDX file of images.
pub(super) fn image_shape(path: &Path) -> Result<Option<[usize; 3]>, DataError> {
    let mut bytes = Vec::new();
    let read = open_unpacked(path).and_then(|file| file.take(16).read_to_end(&mut bytes));
    read.map_err(DataError::read(path))?;
    let is_whole = is_idx_images(&bytes) && bytes.len() == 16;
    let shape = is_whole.then(|| [1, be_u32(&bytes, 8) as usize, be_u32(&bytes, 12) as usize]);
    Ok(shape.filter(|shape| shape.iter().all(|extent| (1..=MOST_PIXELS).contains(extent))))
}

/// The first file of a folder, by name, that holds the images of a phase.
pub(super) fn find_images(folder: &Path, phase: Phase) -> Result<PathBuf, DataError> {
    let prefix = match phase {
        Phase::Train => "train-images",
        Phase::Test => "t10k-images",
    };
    let named = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().starts_with(prefix);
    sorted_entries(folder)?.into_iter().find(named).ok_or_else(|| {
        let reason = format!("holds neither {prefix}-idx3-ubyte(.gz) nor the files of CIFAR-10");
        DataError::at(folder.display(), reason)
    })
}

/// The file of the labels of `images`: beside it under the usual name (`images` and `idx3` replaced by `labels` and
/// `idx1`).
pub(super) fn labels_beside(images: &Path) -> Result<PathBuf, DataError> {
    let name = images.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let labels = name.replace("images", "labels").replace("idx3", "idx1");
    if labels == name {
        let reason = "cannot tell which file holds its labels, for its name has no \"images\" in it";
        return Err(DataError::at(images.display(), reason));
    }
    let same = images.with_file_name(&labels);
    // One of the pair may have been decompressed by hand.
    let other = match labels.strip_suffix(".gz") {
        Some(plain) => images.with_file_name(plain),
        None => images.with_file_name(labels + ".gz"),
    };
    Ok(if !same.exists() && other.exists() { other } else { same })
}

/// Reads the `D` dimensions and the elements of an IDX file of bytes, and nothing behind them.
fn read_idx<const D: usize>(
    path: &Path,
    mut file: impl Read,
    magic: u32,
    what: &str,
) -> Result<([usize; D], Vec<u8>), DataError> {
    let (mut header, header_bytes) = (Vec::new(), 4 + 4 * D);
    file.by_ref().take(header_bytes as u64).read_to_end(&mut header).map_err(DataError::read(path))?;
    let length = |expected: u64, found: usize| {
        let found = if found as u64 > expected { "more".to_owned() } else { found.to_string() };
        let path = path.display();
        DataError::Invalid(format!(
            "{path} must hold {expected} bytes for what its header announces, but holds {found}"
        ))
    };
    if header.len() < 4 {
        return Err(length(header_bytes as u64, header.len()));
    }
    let found = be_u32(&header, 0);
    if found != magic {
        let reason = format!("expected the magic number {magic:#010x} of IDX {what}, found {found:#010x}");
        return Err(DataError::at(path.display(), reason));
    }
    if header.len() < header_bytes {
        return Err(length(header_bytes as u64, header.len()));
    }
    let dims: [usize; D] = std::array::from_fn(|d| be_u32(&header, 4 + 4 * d) as usize);
    let count = dims.iter().fold(1_u64, |product, &dim| product.saturating_mul(dim as u64));
    let mut elements = Vec::new();
    file.take(count.saturating_add(1)).read_to_end(&mut elements).map_err(DataError::read(path))?;
    if elements.len() as u64 != count {
        return Err(length(count.saturating_add(header_bytes as u64), header_bytes + elements.len()));
    }
    elements.shrink_to_fit();
    Ok((dims, elements))
}

fn be_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
