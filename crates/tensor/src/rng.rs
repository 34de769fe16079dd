//! Reproducible randomness: every consumer draws from its own stream of one seed.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The generator of `stream` under `seed`. Streams of one seed are independent; the algorithm never changes with a
/// library version, so results can be reproduced years later.
pub fn stream(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}
