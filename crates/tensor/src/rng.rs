//! Reproducible randomness: every consumer draws from its own stream of one seed.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The generator of `stream` under `seed`. Streams of one seed are independent; the algorithm never changes with a
/// library version, so results can be reproduced years later.
pub fn stream(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

/// Synthetic operands: `len` values drawn uniformly from [-1, 1), the same for the same seed.
pub fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = stream(seed, 0);
    (0..len).map(|_| rng.random_range(-1.0..1.0)).collect()
}
