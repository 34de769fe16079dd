//! Images from a random number generator, for timing a net without its data.

use super::{DataError, Dataset, MOST_LABEL, Sample};
use rand::{Rng, RngExt};
use std::sync::OnceLock;
use tensor::rng;

/// Pseudo-random images and labels, each a function of (seed, index). Nothing can be learned from them.
#[derive(Clone, Debug)]
pub struct Synthetic {
    shape: [usize; 3],
    len: usize,
    classes: u32,
    seed: u64,
    /// Drawn when the first is asked for: by then it is known that there is memory for them.
    labels: OnceLock<Vec<u32>>,
}

impl Synthetic {
    /// `len` images of `shape` (channels, height, width) with labels below `classes`.
    ///
    /// # Errors
    /// [`DataError::Invalid`] if any of these is 0 or there are more classes than labels.
    pub fn new(shape: [usize; 3], classes: usize, len: usize, seed: u64) -> Result<Self, DataError> {
        let limit = u32::try_from(classes).ok().filter(|&classes| classes <= MOST_LABEL + 1).unwrap_or(0);
        if shape.contains(&0) || limit == 0 || len == 0 {
            let [channels, height, width] = shape;
            return Err(DataError::Invalid(format!(
                "synthetic data cannot be {len} images of {channels}x{height}x{width} in {classes} classes"
            )));
        }
        Ok(Self { shape, len, classes: limit, seed, labels: OnceLock::new() })
    }
}

impl Dataset for Synthetic {
    fn len(&self) -> usize {
        self.len
    }

    fn shape(&self) -> [usize; 3] {
        self.shape
    }

    fn classes(&self) -> usize {
        self.classes as usize
    }

    fn label(&self, index: usize) -> u32 {
        let labels = self.labels.get_or_init(|| {
            let mut rng = rng::stream(self.seed, 0);
            (0..self.len).map(|_| rng.random_range(0..self.classes)).collect()
        });
        labels[index]
    }

    fn place(&self, index: usize) -> String {
        format!("synthetic data (sample {index})")
    }

    fn read_into(&self, index: usize, sample: &mut Sample) -> Result<(), DataError> {
        sample.make_room(self.shape.iter().product())?;
        // Stream 0 made the labels.
        rng::stream(self.seed, index as u64 + 1).fill_bytes(&mut sample.pixels);
        (sample.shape, sample.label) = (self.shape, self.label(index));
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        (self.len * size_of::<u32>()) as u64
    }
}
