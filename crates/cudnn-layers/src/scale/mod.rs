//! A factor per channel, and optionally a bias: `y[n][c][..] = gamma[c] * x[n][c][..] + beta[c]`.
//!
//! Backward needs the bottom data `x`. The channels are the axis of [`AxisExtents`]; Caffe's Scale with a bottom of
//! several axes folds them into one.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use crate::AxisExtents;
use tensor::{Accumulate, Device, View, ViewMut};

/// Factors and biases, one element per channel each.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// The factors.
    pub gamma: View<'a>,
    /// The biases; none are zeros.
    pub beta: Option<View<'a>>,
}

/// Where the gradients of [`Affine`] go.
#[derive(Debug)]
pub struct AffineGradients<'a> {
    /// `dgamma[c] = sum of dy * x`, or of `dy` times the normalised `x` in batch normalisation.
    pub dgamma: ViewMut<'a>,
    /// `dbeta[c] = sum of dy`.
    pub dbeta: Option<ViewMut<'a>>,
    /// Whether both are overwritten or added to.
    pub accumulate: Accumulate,
}

impl Affine<'_> {
    pub(crate) fn check(&self, channels: usize) {
        assert_eq!(self.gamma.len(), channels, "one gamma per channel");
        assert_eq!(self.beta.map_or(channels, |beta| beta.len()), channels, "one beta per channel");
    }

    /// Factor and bias of one channel.
    #[inline(always)]
    pub(crate) fn channel(&self, channel: usize) -> [f32; 2] {
        [self.gamma.host::<f32>()[channel], self.beta.map_or(0.0, |beta| beta.host::<f32>()[channel])]
    }
}

impl AffineGradients<'_> {
    pub(crate) fn check(&self, channels: usize) {
        assert_eq!(self.dgamma.len(), channels, "one dgamma per channel");
        let dbeta = self.dbeta.as_ref().map_or(channels, ViewMut::len);
        assert_eq!(dbeta, channels, "one dbeta per channel");
    }
}

/// `y = gamma x + beta`; with `relu`, rectified on the way.
///
/// # Panics
/// If a length does not match `extents`, as in all functions of this module.
pub fn forward(
    device: &Device,
    extents: &AxisExtents,
    affine: Affine<'_>,
    relu: bool,
    x: View<'_>,
    mut y: ViewMut<'_>,
) {
    affine.check(extents.axis);
    assert_eq!((x.len(), y.len()), (extents.len(), extents.len()), "lengths of x and y");
    match device {
        Device::Cpu(cpu) => cpu::forward(cpu, extents, &affine, relu, x.host(), y.host()),
        Device::Cuda(cuda) => cuda::forward(cuda, extents, &affine, relu, Some(x), y),
    }
}

/// As [`forward`] where `y` overwrites `x`: for nets that are only tested, since backward needs `x`.
pub fn forward_in_place(device: &Device, extents: &AxisExtents, affine: Affine<'_>, mut xy: ViewMut<'_>) {
    affine.check(extents.axis);
    assert_eq!(xy.len(), extents.len(), "the blob's length");
    match device {
        Device::Cpu(cpu) => cpu::forward_in_place(cpu, extents, &affine, xy.host()),
        Device::Cuda(cuda) => cuda::forward(cuda, extents, &affine, false, None, xy),
    }
}

/// `dx (+)= gamma dy`. `dx` may be left out by not calling this; the parameters' part is [`backward_affine`].
pub fn backward(
    device: &Device,
    extents: &AxisExtents,
    gamma: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let affine = Affine { gamma, beta: None };
    affine.check(extents.axis);
    assert_eq!((dy.len(), dx.len()), (extents.len(), extents.len()), "lengths of dy and dx");
    match device {
        Device::Cpu(cpu) => cpu::backward(cpu, extents, gamma.host(), dy.host(), dx.host(), accumulate),
        Device::Cuda(cuda) => cuda::backward(cuda, extents, gamma, dy, dx, accumulate),
    }
}

/// `dgamma (+)= sum of dy * x` and `dbeta (+)= sum of dy` per channel.
pub fn backward_affine(
    device: &Device,
    extents: &AxisExtents,
    x: View<'_>,
    dy: View<'_>,
    gradients: AffineGradients<'_>,
) {
    gradients.check(extents.axis);
    assert_eq!((x.len(), dy.len()), (extents.len(), extents.len()), "lengths of x and dy");
    match device {
        Device::Cpu(cpu) => cpu::backward_affine(cpu, extents, [x.host(), dy.host()], gradients),
        Device::Cuda(cuda) => cuda::backward_affine(cuda, extents, x, dy, gradients),
    }
}
