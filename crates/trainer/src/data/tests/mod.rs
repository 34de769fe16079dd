//! Tests of the data module, and what they share.

mod augment;
mod files;
mod images;
mod loader;
mod mean;
mod render;
mod survey;
mod transform;

use super::{Dataset, DatasetFacts, NetError, Sample};
use std::path::{Path, PathBuf};

/// The digits that ship with the project.
fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/digits")
}

/// Sample `index` of `set`.
fn read(set: &dyn Dataset, index: usize) -> Result<Sample, NetError> {
    let mut sample = Sample::default();
    set.read_into(index, &mut sample).map(|()| sample)
}

/// An IDX file: magic number, dimensions, elements.
fn idx_bytes(magic: u32, dims: &[u32], elements: &[u8]) -> Vec<u8> {
    let header = std::iter::once(&magic).chain(dims).flat_map(|word| word.to_be_bytes());
    header.chain(elements.iter().copied()).collect()
}

/// A set whose sample i has the pixels 10 i, 10 i + 1, ... and the label i.
struct Counting {
    facts: DatasetFacts,
    /// Reading this sample fails.
    broken: Option<usize>,
}

impl Counting {
    fn new(len: usize, shape: [usize; 3]) -> Self {
        let facts = DatasetFacts { len, shape, classes: len, ..DatasetFacts::default() };
        Self { facts, broken: None }
    }

    fn decoded(len: usize, shape: [usize; 3], is_decoded: bool) -> Self {
        let facts = DatasetFacts { is_decoded, ..Self::new(len, shape).facts };
        Self { facts, broken: None }
    }
}

impl Dataset for Counting {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn label(&self, index: usize) -> u32 {
        index as u32
    }

    fn place(&self, index: usize) -> String {
        format!("counting {index}")
    }

    fn read_into(&self, index: usize, sample: &mut Sample) -> Result<(), NetError> {
        if self.broken == Some(index) {
            return Err(NetError::at(self.place(index), "broken"));
        }
        let shape = self.facts.shape;
        let pixels: usize = shape.iter().product();
        sample.pixels = (0..pixels).map(|pixel| (10 * index + pixel) as u8).collect();
        sample.shape = shape;
        Ok(())
    }
}
