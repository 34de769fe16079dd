//! A factor per channel, a bias per channel, or both: `y[n][c][..] = gamma[c] * x[n][c][..] + beta[c]`.
//!
//! The gradients of the factors need the bottom data `x`. The channels are the axis of [`AxisExtents`]; Caffe's Scale
//! with a bottom of several axes folds them into one.

pub(crate) mod cpu;
pub(crate) mod cuda;
#[cfg(test)]
mod tests;

use crate::AxisExtents;
use tensor::{Device, Out, View, ViewMut};

/// Factors and biases, one element per channel each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Affine<'a> {
    /// The factors; none are ones.
    pub gamma: Option<View<'a>>,
    /// The biases; none are zeros.
    pub beta: Option<View<'a>>,
}

/// Where the gradients of [`Affine`] go, if they are wanted.
#[derive(Debug, Default)]
pub struct AffineGradients<'a> {
    /// `dgamma[c] = sum of dy * x`, or of `dy` times the normalised `x` in batch normalisation.
    pub gamma: Option<Out<'a>>,
    /// `dbeta[c] = sum of dy`.
    pub beta: Option<Out<'a>>,
}

impl Affine<'_> {
    pub(crate) fn check(&self, channels: usize) {
        let both = [self.gamma, self.beta].into_iter().flatten();
        both.for_each(|values| assert_eq!(values.len(), channels, "one gamma and one beta per channel"));
    }

    /// Factor and bias of one channel.
    #[inline(always)]
    pub(crate) fn channel(&self, channel: usize) -> [f32; 2] {
        let value = |values: Option<View<'_>>, none| values.map_or(none, |v| v.host::<f32>()[channel]);
        [value(self.gamma, 1.0), value(self.beta, 0.0)]
    }
}

impl AffineGradients<'_> {
    pub(crate) fn check(&self, channels: usize) {
        let both = [&self.gamma, &self.beta].into_iter().flatten();
        both.for_each(|gradient| assert_eq!(gradient.to.len(), channels, "one gradient per channel"));
    }
}

/// `y = gamma x + beta`, or, without an `x`, `y = gamma y + beta`; with `relu`, rectified on the way.
pub fn forward(
    device: &Device,
    extents: &AxisExtents,
    affine: Affine<'_>,
    relu: bool,
    x: Option<View<'_>>,
    y: ViewMut<'_>,
) {
    affine.check(extents.axis);
    assert_eq!([x.map_or(y.len(), |x| x.len()), y.len()], [extents.len(); 2], "lengths of x and y");
    on_device!(device, forward(extents, &affine, relu, x, y.replaced()));
}

/// `dx (+)= gamma dy`. The parameters' part is [`backward_affine`].
pub fn backward(device: &Device, extents: &AxisExtents, gamma: View<'_>, dy: View<'_>, dx: Out<'_>) {
    let factors = Affine { gamma: Some(gamma), beta: None };
    factors.check(extents.axis);
    assert_eq!([dy.len(), dx.to.len()], [extents.len(); 2], "lengths of dy and dx");
    on_device!(device, forward(extents, &factors, false, Some(dy), dx));
}

/// `dgamma (+)= sum of dy * x`, `dbeta (+)= sum of dy` per channel, in one order for any number of threads.
pub fn backward_affine(
    device: &Device,
    extents: &AxisExtents,
    x: View<'_>,
    dy: View<'_>,
    gradients: AffineGradients<'_>,
) {
    gradients.check(extents.axis);
    assert_eq!([x.len(), dy.len()], [extents.len(); 2], "lengths of x and dy");
    on_device!(device, backward_affine(extents, x, dy, gradients));
}
