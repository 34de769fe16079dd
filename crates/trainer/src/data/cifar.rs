//! The binary version of CIFAR-10: records of one label byte and 3072 pixels (red, green, blue planes of 32x32).
//! Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

use super::{DataError, Dataset, Phase, Sample, open_unpacked};
use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

pub(super) const SHAPE: [usize; 3] = [3, 32, 32];
const PIXELS: usize = 3 * 32 * 32;
const RECORD_BYTES: usize = 1 + PIXELS;
/// Most records of a file: the whole set. No header says how many there are, and gzip packs a thousandfold.
const MOST_RECORDS: usize = 60_000;
const CLASSES: usize = 10;
const TRAIN_FILES: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
const TEST_FILE: &str = "test_batch.bin";

/// CIFAR-10 images and labels, held in memory. The channels stay in the files' order: red, green, blue, as Caffe's own
/// conversion of this set leaves them.
#[derive(Clone, Debug)]
pub struct Cifar10 {
    records: Vec<u8>,
    /// Each file with the number of records up to and including it.
    files: Vec<(PathBuf, usize)>,
}

impl Cifar10 {
    /// Opens a folder (`data_batch_1.bin` to `data_batch_5.bin` for training, `test_batch.bin` for testing) or one
    /// file of records.
    ///
    /// # Errors
    /// A file is missing, unreadable or not a whole number of records, or holds a label above 9.
    pub fn open(source: &Path, phase: Phase) -> Result<Self, DataError> {
        let paths: Vec<PathBuf> = match phase {
            _ if !source.is_dir() => vec![source.to_owned()],
            Phase::Train => TRAIN_FILES.iter().map(|name| source.join(name)).collect(),
            Phase::Test => vec![source.join(TEST_FILE)],
        };
        let mut set = Self { records: Vec::new(), files: Vec::new() };
        for path in &paths {
            set.append(path, open_unpacked(path).map_err(DataError::read(path))?, "")?;
        }
        set.finish()
    }

    /// The unpacked bytes of one file of records. What is wrong with its length is told behind `but`.
    pub(super) fn read(path: &Path, file: impl Read, but: &str) -> Result<Self, DataError> {
        let mut set = Self { records: Vec::new(), files: Vec::new() };
        set.append(path, file, but)?;
        set.finish()
    }

    fn finish(mut self) -> Result<Self, DataError> {
        self.records.shrink_to_fit();
        self.check_labels(CLASSES, None)?;
        Ok(self)
    }

    fn append(&mut self, path: &Path, file: impl Read, but: &str) -> Result<(), DataError> {
        let most = MOST_RECORDS * RECORD_BYTES;
        let read = file.take(most as u64 + 1).read_to_end(&mut self.records);
        let bytes = read.map_err(DataError::read(path))?;
        let reason = if bytes > most {
            format!("holds more than the {MOST_RECORDS} records of CIFAR-10")
        } else if !is_cifar_length(bytes as u64) {
            format!(
                "holds {bytes} bytes, which is not a whole number of CIFAR-10 records of {RECORD_BYTES} bytes"
            )
        } else {
            self.files.push((path.to_owned(), self.len()));
            return Ok(());
        };
        Err(DataError::at(path.display(), format!("{but}{reason}")))
    }
}

impl Dataset for Cifar10 {
    fn len(&self) -> usize {
        self.records.len() / RECORD_BYTES
    }

    fn shape(&self) -> [usize; 3] {
        SHAPE
    }

    fn classes(&self) -> usize {
        CLASSES
    }

    fn label(&self, index: usize) -> u32 {
        u32::from(self.records[index * RECORD_BYTES])
    }

    fn place(&self, index: usize) -> String {
        let file = self.files.partition_point(|&(_, end)| end <= index);
        let start = if file == 0 { 0 } else { self.files[file - 1].1 };
        format!("{} (record {})", self.files[file].0.display(), index - start)
    }

    fn read_into(&self, index: usize, sample: &mut Sample) -> Result<(), DataError> {
        let record = &self.records[index * RECORD_BYTES..][..RECORD_BYTES];
        sample.set(&record[1..], SHAPE, u32::from(record[0]));
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        self.records.capacity() as u64
    }
}

/// True if a file of so many bytes can hold records.
fn is_cifar_length(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(RECORD_BYTES as u64)
}

/// True if a file, unpacked, is as long as records are.
pub(super) fn holds_records(path: &Path) -> Result<bool, DataError> {
    let most = (MOST_RECORDS * RECORD_BYTES) as u64;
    let bytes = open_unpacked(path).and_then(|file| io::copy(&mut file.take(most + 1), &mut io::sink()));
    bytes.map(|bytes| bytes <= most && is_cifar_length(bytes)).map_err(DataError::read(path))
}

/// True if a folder holds the files of CIFAR-10.
pub(super) fn is_cifar_folder(folder: &Path) -> bool {
    folder.join(TRAIN_FILES[0]).exists() || folder.join(TEST_FILE).exists()
}
