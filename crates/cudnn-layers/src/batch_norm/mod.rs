//! Batch normalisation per channel: `xhat = (x - mean) * inv_std`, `y = gamma xhat + beta`.
//!
//! * Training: mean and variance (biased, divided by `m = n * pixels`) of the whole mini-batch;
//!   `inv_std = 1 / sqrt(variance + epsilon)`. Both are saved for backward. gamma and beta are optional: without them this
//!   is Caffe's BatchNorm, with them NVIDIA's `scale_bias`.
//! * Running statistics are Caffe's three blobs: with `f = moving_average_fraction`, `mean = f * mean + batch mean`,
//!   `variance = f * variance + m / (m - 1) * batch variance`, `factor = f * factor + 1`. Inference divides the first two
//!   by the third.
//! * Backward needs the bottom data and what forward saved. With batch statistics
//!   `dx = gamma * inv_std * (dy - mean(dy) - xhat * mean(dy * xhat))`, with running ones `dx = gamma * inv_std * dy`.
//!
//! A ReLU that follows can be part of both passes: `y = max(gamma xhat + beta, 0)`. Backward finds the sign of `y` again
//! from `x`, by the same operations, so that neither `y` nor a pass over its gradient is needed.
//!
//! Not in place: backward needs `x`. On the CPU one channel is one task, whose planes stay in cache between its passes; on
//! a GPU the same holds for channels that fit.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

pub use crate::scale::{Affine, AffineGradients};

use crate::AxisExtents;
use tensor::{Accumulate, Device, Format, Space, View, ViewMut};

/// What forward and backward have in common.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm<'a> {
    /// The blobs; the axis are the channels.
    pub extents: AxisExtents,
    /// Which statistics forward uses.
    pub statistics: Statistics,
    /// gamma and beta.
    pub affine: Affine<'a>,
    /// Whether a ReLU is part of both passes.
    pub relu: bool,
}

/// Which statistics forward uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// The mini-batch's own, which depend on `x`.
    Batch,
    /// The running ones, which are constants (Caffe's `use_global_stats`).
    Running,
}

/// The running statistics: forward updates them with those of a mini-batch, or normalises with them.
#[derive(Debug)]
pub struct RunningSums<'a> {
    /// The weighted sum of means, one element per channel.
    pub mean: ViewMut<'a>,
    /// The weighted sum of unbiased variances, one element per channel.
    pub variance: ViewMut<'a>,
    /// The sum of the weights: one element.
    pub factor: ViewMut<'a>,
    /// How much of the old sums remains at each update.
    pub moving_average_fraction: f32,
}

/// What forward saves for backward: the mean that was subtracted and one over the standard deviation, an element per channel
/// each.
pub fn saved(extents: &AxisExtents) -> Space {
    Space::all_of([Space::of::<f32>(extents.axis); 2])
}

/// Normalises `x` to `y`, saves the statistics ([`saved`]), and updates the running ones with those of a mini-batch.
///
/// # Panics
/// If a length does not match the extents or less can be saved than [`saved`] says, as in [`backward`].
pub fn forward(
    device: &Device,
    norm: &BatchNorm<'_>,
    epsilon: f32,
    x: View<'_>,
    mut y: ViewMut<'_>,
    mut saved: ViewMut<'_>,
    running: RunningSums<'_>,
) {
    let (len, channels) = (norm.extents.len(), norm.extents.axis);
    assert_eq!((x.len(), y.len()), (len, len), "lengths of x and y");
    let lens = [&running.mean, &running.variance, &running.factor].map(ViewMut::len);
    assert_eq!(lens, [channels, channels, 1], "lengths of the running statistics");
    norm.affine.check(channels);
    let saved = [(); 2].map(|()| saved.take(Format::F32, channels));
    match device {
        Device::Cpu(cpu) => {
            cpu::forward(cpu, norm, epsilon, x.host(), y.host(), saved.map(ViewMut::into_host), running);
        }
        Device::Cuda(cuda) => cuda::forward(cuda, norm, epsilon, x, y, saved, running),
    }
}

/// Normalises `x` to `y` once more, bit by bit as [`forward`] has, by what that `saved`: one pass over `x`.
///
/// # Panics
/// As there.
pub fn repeat(device: &Device, norm: &BatchNorm<'_>, x: View<'_>, mut y: ViewMut<'_>, mut saved: View<'_>) {
    let (len, channels) = (norm.extents.len(), norm.extents.axis);
    assert_eq!((x.len(), y.len()), (len, len), "lengths of x and y");
    norm.affine.check(channels);
    let saved = [(); 2].map(|()| saved.take(Format::F32, channels));
    match device {
        Device::Cpu(cpu) => cpu::normalise(cpu, norm, x.host(), y.host(), saved.map(|saved| saved.host())),
        Device::Cuda(cuda) => cuda::normalise(cuda, norm, x, y, saved),
    }
}

/// `dx (+)= ...` (see the module), `dgamma (+)= sum of dy * xhat` and `dbeta (+)= sum of dy`. Through a ReLU, only the `dy`
/// where `y > 0` count.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    device: &Device,
    norm: &BatchNorm<'_>,
    x: View<'_>,
    mut saved: View<'_>,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
    gradients: AffineGradients<'_>,
) {
    let (len, channels) = (norm.extents.len(), norm.extents.axis);
    assert_eq!((x.len(), dy.len(), dx.len()), (len, len, len), "lengths of x, dy and dx");
    norm.affine.check(channels);
    gradients.check(channels);
    let saved = [(); 2].map(|()| saved.take(Format::F32, channels));
    match device {
        Device::Cpu(cpu) => {
            let saved = saved.map(|saved| saved.host());
            cpu::backward(cpu, norm, [x.host(), dy.host()], saved, dx.host(), accumulate, gradients);
        }
        Device::Cuda(cuda) => cuda::backward(cuda, norm, x, saved, dy, dx, accumulate, gradients),
    }
}
