//! Images from a random number generator, for timing a net without its data.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{DataError, Dataset, Sample};

/// Pseudo-random images and labels, each a function of (seed, index). Nothing can be learned from them.
#[derive(Clone, Debug)]
pub struct Synthetic {
    shape: [usize; 3],
    labels: Vec<u32>,
    classes: usize,
    seed: u64,
}

impl Synthetic {
    /// `len` images of `shape` (channels, height, width) with labels below `classes`.
    ///
    /// # Errors
    /// [`DataError::Options`] if any of these is 0 or the classes do not fit `u32`.
    pub fn new(shape: [usize; 3], classes: usize, len: usize, seed: u64) -> Result<Self, DataError> {
        let limit = u32::try_from(classes).unwrap_or(0);
        if shape.contains(&0) || limit == 0 || len == 0 {
            let [channels, height, width] = shape;
            return Err(DataError::Options(format!(
                "synthetic data cannot be {len} images of {channels}x{height}x{width} in {classes} classes"
            )));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let labels = (0..len).map(|_| rng.random_range(0..limit)).collect();
        Ok(Self { shape, labels, classes, seed })
    }
}

impl Dataset for Synthetic {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn shape(&self) -> [usize; 3] {
        self.shape
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn label(&self, index: usize) -> u32 {
        self.labels[index]
    }

    fn place(&self, index: usize) -> String {
        format!("synthetic data (sample {index})")
    }

    fn read_into(&self, index: usize, sample: &mut Sample) -> Result<(), DataError> {
        sample.pixels.resize(self.shape.iter().product(), 0);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(index as u64 + 1); // stream 0 made the labels
        rng.fill_bytes(&mut sample.pixels);
        (sample.shape, sample.label) = (self.shape, self.labels[index]);
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        (self.labels.capacity() * size_of::<u32>()) as u64
    }
}
