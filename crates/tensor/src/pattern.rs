//! Synthetic operands.

use rand::RngExt;

/// `len` values drawn uniformly from [-1, 1), the same for the same seed.
pub fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = crate::rng::stream(seed, 0);
    (0..len).map(|_| rng.random_range(-1.0..1.0)).collect()
}
