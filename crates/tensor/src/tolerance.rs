//! How far results of one computation may lie apart, and why.

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

/// Largest relative distance allowed between a gradient and the differences of an objective that is linear, over a step of
/// 1, where the algorithms behind both are off by `max_error` of the largest output.
///
/// Some 50 outputs of up to 5 change with one element, each by an error of up to four times the typical one: a sum of
/// random signs of sqrt(50) * 5 * 4 * `max_error`, rounded up for unlucky draws.
pub fn difference_tolerance(max_error: f32) -> f64 {
    200.0 * f64::from(max_error)
}

/// Largest relative L2 distance allowed between two executions of one `f32` convolution, whose algorithms are of the
/// accuracy class `max_error` (largest error over the largest output) or better.
///
/// Errors and outputs are spread alike, so that the ratio of their norms is about that of their largest values; the factor
/// 4 covers operands on which an algorithm is worse than typical. The least is 1e-5: sums of some thousand
/// products in another order.
pub fn distance_tolerance(max_error: f32) -> f64 {
    (4.0 * f64::from(max_error)).max(1e-5)
}
