//! Which sample comes at which position, for ever: epoch after epoch, in order or shuffled.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tensor::rng;

/// Streams of one seed: the draws of single samples use the lower half, the permutations of epochs the upper half.
const EPOCH_STREAMS: u64 = 1 << 63;

/// Maps a position (samples consumed since the start) to the index of a sample. Shuffled, each epoch is a permutation
/// made from (seed, epoch) alone, so that any position can be resumed without replaying the ones before it.
#[derive(Debug)]
pub(super) struct Order {
    len: usize,
    seed: u64,
    shuffle: bool,
    /// The epoch that `permutation` belongs to.
    epoch: Option<u64>,
    permutation: Vec<u32>,
}

impl Order {
    pub(super) fn new(len: usize, seed: u64, shuffle: bool) -> Self {
        Self { len, seed, shuffle, epoch: None, permutation: Vec::new() }
    }

    pub(super) fn index(&mut self, position: u64) -> usize {
        let (epoch, within) = (position / self.len as u64, (position % self.len as u64) as usize);
        if !self.shuffle {
            return within;
        }
        // Fisher and Yates' shuffle, written out so that the order does not change with a version of `rand`.
        if self.epoch.replace(epoch) != Some(epoch) {
            let mut rng = rng::stream(self.seed, EPOCH_STREAMS | epoch);
            self.permutation.clear();
            self.permutation.extend(0..self.len as u32);
            for last in (1..self.len).rev() {
                self.permutation.swap(last, below(&mut rng, last + 1));
            }
        }
        self.permutation[within] as usize
    }
}

/// A number below `n`, by multiplication: biased by less than n / 2^64, which no data set can show.
pub(super) fn below(rng: &mut ChaCha8Rng, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}
