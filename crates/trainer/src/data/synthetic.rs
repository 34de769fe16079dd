//! Images from a random number generator, for timing a net without its data.

use super::{Dataset, DatasetFacts, MOST_LABEL, NetError, Sample, make_room};
use rand::{Rng, RngExt};
use std::sync::OnceLock;
use tensor::rng;

/// Pseudo-random images and labels, each a function of (seed, index). Nothing can be learned from them.
#[derive(Clone, Debug)]
pub struct Synthetic {
    facts: DatasetFacts,
    seed: u64,
    /// Drawn when the first is asked for: by then it is known that there is memory for them.
    labels: OnceLock<Vec<u32>>,
}

impl Synthetic {
    /// `len` images of `shape` (channels, height, width) with labels below `classes`.
    ///
    /// # Errors
    /// [`NetError::Refused`] if any of these is 0 or there are more classes than labels.
    pub fn new(shape: [usize; 3], classes: usize, len: usize, seed: u64) -> Result<Self, NetError> {
        if shape.contains(&0) || !(1..=MOST_LABEL as usize + 1).contains(&classes) || len == 0 {
            let [channels, height, width] = shape;
            return Err(NetError::Refused(format!(
                "synthetic data cannot be {len} images of {channels}x{height}x{width} in {classes} classes"
            )));
        }
        let resident_bytes = (len * size_of::<u32>()) as u64;
        let facts = DatasetFacts { len, shape, classes, resident_bytes, ..DatasetFacts::default() };
        Ok(Self { facts, seed, labels: OnceLock::new() })
    }
}

impl Dataset for Synthetic {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn label(&self, index: usize) -> u32 {
        let labels = self.labels.get_or_init(|| {
            let mut rng = rng::stream(self.seed, 0);
            (0..self.facts.len).map(|_| rng.random_range(0..self.facts.classes as u32)).collect()
        });
        labels[index]
    }

    fn place(&self, index: usize) -> String {
        format!("synthetic data (sample {index})")
    }

    fn read_into(&self, index: usize, sample: &mut Sample) -> Result<(), NetError> {
        make_room(&mut sample.pixels, self.facts.shape.iter().product())?;
        // Stream 0 made the labels.
        rng::stream(self.seed, index as u64 + 1).fill_bytes(&mut sample.pixels);
        sample.shape = self.facts.shape;
        Ok(())
    }
}
