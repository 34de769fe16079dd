//! Sets that are small enough to be held in memory: MNIST's IDX files and CIFAR-10's binary form, in a folder of their
//! own; each file plain or gzipped, whatever its name.
//!
//! IDX (big-endian): two zero bytes, the element type (8 = unsigned byte), the number of dimensions, then each dimension
//! as a `u32`, then the elements. Images have three dimensions (magic number 0x803), labels one (0x801). Source: Y.
//! LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits".
//!
//! CIFAR-10: records of one label byte and 3072 pixels (red, green, blue planes of 32x32). The channels stay in this
//! order, as Caffe's own conversion of this set leaves them. Source: A. Krizhevsky, "Learning Multiple Layers of
//! Features from Tiny Images", 2009.

use super::{Dataset, DatasetFacts, NetError, Phase, Result, Sample, open_unpacked, sorted_entries};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Images and labels in memory.
#[derive(Clone, Debug)]
pub struct ImageRecords {
    /// Of each image one channel after the other.
    pixels: Vec<u8>,
    labels: Vec<u8>,
    facts: DatasetFacts,
    /// Its folder, or the file of its labels.
    source: PathBuf,
}

impl Dataset for ImageRecords {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn label(&self, index: usize) -> u32 {
        u32::from(self.labels[index])
    }

    fn place(&self, index: usize) -> String {
        format!("{} (sample {index})", self.source.display())
    }

    fn read_into(&self, index: usize, sample: &mut Sample) -> Result<()> {
        let shape @ [channels, height, width] = self.facts.shape;
        let (plane, bytes) = (height * width, channels * height * width);
        let planes = &self.pixels[index * bytes..][..bytes];
        sample.pixels.clear();
        sample.pixels.extend((0..bytes).map(|at| planes[at % channels * plane + at / channels]));
        sample.shape = shape;
        Ok(())
    }
}

/// Where a set lies: the images and the labels of IDX, each one file, or the files of CIFAR-10.
fn files(source: &Path, phase: Phase) -> Result<[Vec<PathBuf>; 3]> {
    for (file, database) in [("data.mdb", "LMDB"), ("CURRENT", "LevelDB")] {
        if source.join(file).exists() {
            let reason = format!(
                "is a database of {database}, which cannot be read; use IDX, CIFAR-10 or image files"
            );
            return Err(NetError::at(source.display(), reason));
        }
    }
    let (prefixes, count) = match phase {
        Phase::Train => (["train-images", "train-labels", "data_batch_"], 5),
        Phase::Test => (["t10k-images", "t10k-labels", "test_batch"], 1),
    };
    let entries = sorted_entries(source)?;
    let files = prefixes.map(|prefix| {
        let is = |path: &&PathBuf| path.file_name().unwrap_or_default().to_string_lossy().starts_with(prefix);
        entries.iter().filter(is).cloned().collect::<Vec<_>>()
    });
    if files[0].is_empty() && files[2].len() != count {
        let ([images, _, batches], found) = (prefixes, files[2].len());
        let reason = format!(
            "holds neither {images}-idx3-ubyte(.gz) nor CIFAR-10's {batches}* ({count}, of which {found} are there)"
        );
        return Err(NetError::at(source.display(), reason));
    }
    Ok(files)
}

impl ImageRecords {
    fn new(pixels: Vec<u8>, labels: Vec<u8>, shape: [usize; 3], classes: usize, source: &Path) -> Self {
        let resident_bytes = (pixels.capacity() + labels.capacity()) as u64;
        let facts =
            DatasetFacts { len: labels.len(), shape, classes, resident_bytes, ..DatasetFacts::default() };
        Self { pixels, labels, facts, source: source.to_owned() }
    }

    /// Opens the `source` of a `Data` layer: a folder with a pair of IDX files per phase, or with CIFAR-10's files.
    ///
    /// # Errors
    /// The source is something else, such as an LMDB database; a file is unreadable, damaged, truncated or too long.
    pub fn open(source: &Path, phase: Phase) -> Result<Self> {
        let [images, labels, batches] = files(source, phase)?;
        match (images.first(), labels.first()) {
            (Some(images), Some(labels)) => Self::idx(images, labels),
            (Some(images), None) => {
                let labels = if phase == Phase::Train { "train-labels" } else { "t10k-labels" };
                let reason = format!("there is no {labels}-idx1-ubyte(.gz) beside it");
                Err(NetError::at(images.display(), reason))
            }
            (None, _) => Self::cifar(source, &batches),
        }
    }

    /// Channels, height and width of the images of such a source, of which no more is read than a header.
    ///
    /// # Errors
    /// The source is something else, or its header is.
    pub fn shape_of(source: &Path, phase: Phase) -> Result<[usize; 3]> {
        let [images, ..] = files(source, phase)?;
        let Some(images) = images.first() else { return Ok([3, 32, 32]) };
        let mut file = open_unpacked(images).map_err(NetError::read(images))?;
        let [_, height, width] = read_header(images, &mut file)?;
        // A header alone is not believed everything.
        match [height, width].iter().all(|side| (1..=1 << 16).contains(side)) {
            true => Ok([1, height, width]),
            false => Err(NetError::at(images.display(), format!("has images of {height}x{width}"))),
        }
    }

    fn idx(images: &Path, labels: &Path) -> Result<Self> {
        let opened = |path: &Path| open_unpacked(path).map_err(NetError::read(path));
        let ([count, height, width], pixels) = read_idx(images, opened(images)?)?;
        let ([label_count], bytes) = read_idx(labels, opened(labels)?)?;
        if count != label_count || pixels.is_empty() {
            return Err(NetError::Refused(format!(
                "{} holds {count} images of {height}x{width}, but {} holds {label_count} labels",
                images.display(),
                labels.display()
            )));
        }
        let classes = bytes.iter().max().map_or(0, |&label| usize::from(label) + 1);
        Ok(Self::new(pixels, bytes, [1, height, width], classes, labels))
    }

    fn cifar(source: &Path, files: &[PathBuf]) -> Result<Self> {
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for file in files {
            let mut bytes = Vec::new();
            let read = open_unpacked(file).and_then(|open| open.take(MOST_BYTES + 1).read_to_end(&mut bytes));
            let length = read.map_err(NetError::read(file))?;
            let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
            if records.is_empty() || !rest.is_empty() || length as u64 > MOST_BYTES {
                let reason = format!("is not a file of up to 60000 CIFAR-10 records of {RECORD_BYTES} bytes");
                return Err(NetError::at(file.display(), reason));
            }
            if let Some(bad) = records.iter().position(|record| record[0] > 9) {
                let reason = format!("label {} is out of range, the classes are 0 to 9", records[bad][0]);
                return Err(NetError::at(format!("{} (record {bad})", file.display()), reason));
            }
            labels.extend(records.iter().map(|record| record[0]));
            pixels.reserve_exact(length);
            records.iter().for_each(|record| pixels.extend_from_slice(&record[1..]));
        }
        Ok(Self::new(pixels, labels, [3, 32, 32], 10, source))
    }
}

const RECORD_BYTES: usize = 1 + 3 * 32 * 32;
/// Bytes of the whole set. No header says how many records there are, and gzip packs a thousandfold.
const MOST_BYTES: u64 = 60_000 * RECORD_BYTES as u64;

/// Reads the `D` dimensions of an IDX file of bytes.
fn read_header<const D: usize>(path: &Path, file: &mut impl Read) -> Result<[usize; D]> {
    let mut word = || {
        let mut bytes = [0; 4];
        file.read_exact(&mut bytes).map_err(NetError::read(path)).map(|()| u32::from_be_bytes(bytes))
    };
    let (magic, found) = (0x800 | D as u32, word()?);
    if found != magic {
        let reason = format!("expected the magic number {magic:#010x} of IDX, found {found:#010x}");
        return Err(NetError::at(path.display(), reason));
    }
    let mut dims = [0; D];
    for dim in &mut dims {
        *dim = word()? as usize;
    }
    Ok(dims)
}

/// Reads the dimensions and the elements of an IDX file of bytes, and nothing behind them.
pub(super) fn read_idx<const D: usize>(path: &Path, mut file: impl Read) -> Result<([usize; D], Vec<u8>)> {
    let dims = read_header(path, &mut file)?;
    let count = dims.iter().fold(1_u64, |product, &dim| product.saturating_mul(dim as u64));
    let mut elements = Vec::new();
    file.take(count.saturating_add(1)).read_to_end(&mut elements).map_err(NetError::read(path))?;
    let found = elements.len() as u64;
    if found != count {
        let found = if found > count { "more".to_owned() } else { found.to_string() };
        let reason = format!("its header announces {count} elements, but it holds {found}");
        return Err(NetError::at(path.display(), reason));
    }
    elements.shrink_to_fit();
    Ok((dims, elements))
}
