//! Operands in which no two samples are alike.

use tensor::rng::random;

/// A prime number. Samples that are no multiple of it are alike only if their numbers differ by a multiple of it.
pub(super) const PERIOD: usize = (1 << 20) - 3;

/// The values of an operand are this pattern over and over, of a length at which no two samples (or filters) of
/// `sample` elements begin. Patterns with different `seed`s are independent.
pub(super) fn pattern(sample: usize, seed: u64) -> Vec<f32> {
    // In multiples of one period, samples are alike only after more values than any memory has of the other.
    random(if sample.is_multiple_of(PERIOD) { PERIOD - 1 } else { PERIOD }, seed)
}

/// `len` values from number `start` on, in runs of neighbours.
pub(super) fn runs(pattern: &[f32], start: usize, len: usize) -> impl Iterator<Item = &[f32]> {
    let (mut from, mut left) = (start % pattern.len(), len);
    std::iter::from_fn(move || {
        let run = &pattern[from..][..left.min(pattern.len() - from)];
        (from, left) = (0, left - run.len());
        (!run.is_empty()).then_some(run)
    })
}
