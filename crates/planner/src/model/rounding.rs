//! Times compared.

/// A time must be shorter by more than this part to count as faster: sums of equal times taken in another order differ in
/// their last bits, and that must not decide.
const ROUNDING: f64 = 1e-12;

/// Whether `time_ms` is below `than_ms` by more than rounding.
pub(crate) fn faster(time_ms: f64, than_ms: f64) -> bool {
    time_ms < than_ms * (1.0 - ROUNDING)
}
