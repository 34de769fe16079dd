//! Dropout, inverted: in training an element survives with probability `1 - ratio` and is then multiplied by
//! `1 / (1 - ratio)`; in testing dropout is the identity and nothing need run.
//!
//! No mask is stored. Whether an element survives is a hash of seed, iteration and index, so forward and backward, any
//! device and any number of threads draw the same mask, and a resumed training draws the mask it would have drawn.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use tensor::{Device, Out, View};

/// Which elements are dropped.
#[derive(Clone, Copy, Debug)]
pub struct Dropout<'a> {
    /// Probability of being dropped, in `[0, 1)`.
    pub ratio: f32,
    /// Identifies the layer (and the training run).
    pub seed: u64,
    /// The iteration's number, so that every one draws another mask: the bytes of a `u64` in the device's memory, where
    /// recorded work reads it again ([`tensor::Setting`]).
    pub iteration: View<'a>,
}

impl Dropout<'_> {
    /// What a survivor is multiplied by.
    pub fn scale(&self) -> f32 {
        1.0 / (1.0 - self.ratio)
    }

    /// An element is dropped if its hash is below this: `ratio` of all 32-bit values.
    fn threshold(&self) -> u32 {
        (f64::from(self.ratio) * 2.0f64.powi(32)) as u32
    }
}

/// `to (+)= from * scale` where the element survives, `from * 0` elsewhere: of data forward, and of its gradient
/// backward. Without a `from`, `to` holds it before and is overwritten.
///
/// # Panics
/// If the ratio lies outside `[0, 1)`.
pub fn apply(device: &Device, dropout: &Dropout<'_>, from: Option<View<'_>>, to: Out<'_>) {
    let len = to.to.len();
    assert_eq!(from.map_or(len, |from| from.len()), len, "operands of a dropout have one length");
    let ratio = dropout.ratio;
    assert!((0.0..1.0).contains(&ratio), "a dropout ratio of {ratio} lies outside [0, 1)");
    on_device!(device, apply(dropout, from, to));
}
