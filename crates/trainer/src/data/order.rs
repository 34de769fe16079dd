//! Which sample comes at which position, for ever: epoch after epoch, in order or shuffled.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tensor::rng;

/// Streams of one seed: the draws of single samples use the lower half, the permutations of epochs the upper half.
const EPOCH_STREAMS: u64 = 1 << 63;

/// The permutation of the epoch that was asked for last, if samples are shuffled. Each is made from (seed, epoch) alone, so
/// that any position (samples consumed since the start) can be resumed without replaying the ones before it.
#[derive(Debug, Default)]
pub(super) struct Order {
    epoch: Option<u64>,
    permutation: Vec<u32>,
}

impl Order {
    /// The index of the sample at `position` in a set of `len`, which is shuffled by `seed`, if there is one.
    pub(super) fn index(&mut self, position: u64, len: usize, seed: Option<u64>) -> usize {
        let (epoch, within) = (position / len as u64, (position % len as u64) as usize);
        let Some(seed) = seed else { return within };
        // Fisher and Yates' shuffle, written out so that the order does not change with a version of `rand`.
        if self.epoch.replace(epoch) != Some(epoch) {
            let mut rng = rng::stream(seed, EPOCH_STREAMS | epoch);
            self.permutation.clear();
            self.permutation.extend(0..len as u32);
            for last in (1..len).rev() {
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
