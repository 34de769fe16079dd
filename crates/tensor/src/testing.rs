//! What tests share: comparisons and tolerances, a GPU's failure, and, from their own rooms, random operands and what
//! verifying allows.

use crate::cuda::{Cuda, Grid, Source};
pub use crate::{rng::random, tolerance::distance_tolerance};

/// Largest absolute difference divided by the largest absolute reference value.
///
/// # Panics
/// If the lengths differ.
pub fn max_error(actual: &[f32], reference: &[f64]) -> f64 {
    assert_eq!(actual.len(), reference.len());
    let largest = reference.iter().fold(f64::MIN_POSITIVE, |largest, value| largest.max(value.abs()));
    let distance = actual.iter().zip(reference).fold(0.0f64, |worst, (&actual, &reference)| {
        let distance = (f64::from(actual) - reference).abs();
        if distance.is_nan() { f64::INFINITY } else { worst.max(distance) }
    });
    distance / largest
}

/// Asserts [`max_error`] to be at most `tolerance`.
///
/// # Panics
/// With both numbers if it is not.
pub fn assert_close(actual: &[f32], reference: &[f64], tolerance: f64, what: &str) {
    let error = max_error(actual, reference);
    assert!(error <= tolerance, "{what}: error {error:.3e} exceeds {tolerance:.3e}");
}

/// Largest distance allowed between an `f32` sum of `terms` products and the exact one, relative to the largest
/// reference value.
///
/// Rounding errors of a sum of random signs grow like the square root of its length; 6e-8 is half a unit in the last
/// place, and the factor 8 covers unlucky draws over thousands of outputs. If this trips, suspect the code first.
pub fn sum_tolerance(terms: usize) -> f64 {
    8.0 * 6e-8 * (terms.max(16) as f64).sqrt()
}

/// Algorithms with a larger typical error than this are not compared with others but through their own tests: cuDNN's
/// Winograd with filters larger than 3x3 is off by 2e-3, and TF32 by 5e-4, which would hide mistakes.
pub const COMPARABLE_ERROR: f32 = 1e-4;

/// Largest relative distance allowed between a gradient and the differences of an objective that is linear, over a step
/// of 1, where the algorithms behind both are off by `max_error` of the largest output.
///
/// Some 50 outputs of up to 5 change with one element, each by an error of up to four times the typical one: a sum of
/// random signs of sqrt(50) * 5 * 4 * `max_error`, rounded up for unlucky draws.
pub fn difference_tolerance(max_error: f32) -> f64 {
    200.0 * f64::from(max_error)
}

static TRAP: Source =
    Source { name: "trap.cu", text: &["extern \"C\" __global__ void trap() { asm(\"trap;\"); }\n"] };

/// Launches a CUDA kernel that fails for good: whatever this process asks of the GPU afterwards is an error, as if the
/// GPU were lost. Other processes notice nothing.
pub fn break_down(cuda: &Cuda) {
    // SAFETY: the kernel has no parameters and touches no memory.
    unsafe { cuda.launch(&TRAP, "trap", Grid::line(1, 1), &[]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_largest_reference_and_nan_is_the_worst() {
        assert_eq!(max_error(&[1.0, 2.5], &[1.0, 2.0]), 0.25);
        assert_eq!(max_error(&[f32::NAN, 2.0], &[1.0, 2.0]), f64::INFINITY);
        assert_eq!(random(4, 7), random(4, 7));
        assert_ne!(random(4, 7), random(4, 8));
    }
}
