//! Operands in which no two samples are alike.

use tensor::rng::random;

/// The values of an operand: a pattern over and over, of a length at which no two samples begin.
pub(super) struct Operand {
    pub(super) pattern: Vec<f32>,
}

/// A prime number. Samples that are no multiple of it are alike only if their numbers differ by a multiple of it.
pub(super) const PERIOD: usize = (1 << 20) - 3;

impl Operand {
    /// Values for samples (or filters) of `sample` elements. Operands with different `seed`s are independent.
    pub(super) fn new(sample: usize, seed: u64) -> Self {
        // In multiples of one period, samples are alike only after more values than any memory has of the other.
        let period = if sample.is_multiple_of(PERIOD) { PERIOD - 1 } else { PERIOD };
        Self { pattern: random(period, seed) }
    }

    /// `len` values from number `start` on, in runs of neighbours.
    pub(super) fn runs(&self, start: usize, len: usize) -> impl Iterator<Item = &[f32]> {
        let (mut from, mut left) = (start % self.pattern.len(), len);
        std::iter::from_fn(move || {
            let run = &self.pattern[from..][..left.min(self.pattern.len() - from)];
            (from, left) = (0, left - run.len());
            (!run.is_empty()).then_some(run)
        })
    }
}
