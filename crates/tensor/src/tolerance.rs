//! How far results of one computation may lie apart, and why.

/// Largest relative L2 distance allowed between two executions of one `f32` convolution, whose algorithms are of the
/// accuracy class `max_error` (largest error over the largest output) or better.
///
/// Errors and outputs are spread alike, so that the ratio of their norms is about that of their largest values; the
/// factor 4 covers operands on which an algorithm is worse than typical. The least is 1e-5: sums of some thousand
/// products in another order.
pub fn distance_tolerance(max_error: f32) -> f64 {
    (4.0 * f64::from(max_error)).max(1e-5)
}
