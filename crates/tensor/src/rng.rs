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

/// A hash: David Stafford's variant 13 of the MurmurHash3 finaliser, offset so that 0 does not map to 0.
pub fn mix64(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Synthetic operands: `len` values drawn uniformly from [-1, 1), the same for the same seed.
pub fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = stream(seed, 0);
    (0..len).map(|_| rng.random_range(-1.0..1.0)).collect()
}
