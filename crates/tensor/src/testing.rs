//! What tests share: comparisons, and, from their own rooms, random operands and tolerances.

pub use crate::{
    pattern::random,
    tolerance::{COMPARABLE_ERROR, difference_tolerance, distance_tolerance, sum_tolerance},
};

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
