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

/// The running statistics, to be updated by a training pass.
#[derive(Debug)]
pub struct RunningMut<'a> {
    /// The weighted sum of means, one element per channel.
    pub mean: ViewMut<'a>,
    /// The weighted sum of unbiased variances, one element per channel.
    pub variance: ViewMut<'a>,
    /// The sum of the weights: one element.
    pub factor: ViewMut<'a>,
    /// How much of the old sums remains at each update.
    pub moving_average_fraction: f32,
}

/// The running statistics, to be normalised with.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// The weighted sum of means, one element per channel.
    pub mean: View<'a>,
    /// The weighted sum of variances, one element per channel.
    pub variance: View<'a>,
    /// The sum of the weights: one element.
    pub factor: View<'a>,
}

/// What forward saves for backward: the mean that was subtracted and one over the standard deviation, an element per channel
/// each.
pub fn saved(extents: &AxisExtents) -> Space {
    Space::all_of([Space::of::<f32>(extents.axis); 2])
}

/// Which statistics forward used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// The mini-batch's own, which depend on `x`.
    Batch,
    /// The running ones, which are constants (Caffe's `use_global_stats`).
    Running,
}

/// Normalises with the statistics of the mini-batch, saves them ([`saved`]), and updates the running ones if given; with `relu`, `y` is
/// rectified on the way.
///
/// # Panics
/// If a length does not match `extents` or less can be saved than [`saved`] says, as in all functions of this module.
#[allow(clippy::too_many_arguments)]
pub fn forward_training(
    device: &Device,
    extents: &AxisExtents,
    epsilon: f32,
    x: View<'_>,
    affine: Option<Affine<'_>>,
    relu: bool,
    mut y: ViewMut<'_>,
    mut saved: ViewMut<'_>,
    running: Option<RunningMut<'_>>,
) {
    check_forward(extents, &x, affine.as_ref(), &y);
    let saved = [(); 2].map(|()| saved.take(Format::F32, extents.axis));
    match device {
        Device::Cpu(cpu) => {
            let out = saved.map(ViewMut::into_host);
            let after = Mapping { affine, relu };
            cpu::forward_training(cpu, extents, epsilon, x.host(), after, y.host(), out, running);
        }
        Device::Cuda(cuda) => {
            cuda::forward_training(cuda, extents, epsilon, x, Mapping { affine, relu }, y, saved, running);
        }
    }
}

/// Normalises with the running statistics and saves the mean and inverse standard deviation that they give; with `relu`,
/// `y` is rectified on the way.
#[allow(clippy::too_many_arguments)]
pub fn forward_inference(
    device: &Device,
    extents: &AxisExtents,
    epsilon: f32,
    x: View<'_>,
    affine: Option<Affine<'_>>,
    relu: bool,
    running: Running<'_>,
    mut y: ViewMut<'_>,
    mut saved: ViewMut<'_>,
) {
    check_forward(extents, &x, affine.as_ref(), &y);
    let saved = [(); 2].map(|()| saved.take(Format::F32, extents.axis));
    let lens = (running.mean.len(), running.variance.len(), running.factor.len());
    assert_eq!(lens, (extents.axis, extents.axis, 1), "lengths of the running statistics");
    match device {
        Device::Cpu(cpu) => {
            let [mean, inv_std] = saved.map(ViewMut::into_host);
            cpu::running_statistics(running, epsilon, [mean, inv_std]);
            cpu::normalise(cpu, extents, x.host(), Mapping { affine, relu }, y.host(), [mean, inv_std]);
        }
        Device::Cuda(cuda) => {
            cuda::forward_inference(cuda, extents, epsilon, x, Mapping { affine, relu }, running, y, saved);
        }
    }
}

/// `dx (+)= ...` (see the module) and, with gamma and beta, `dgamma (+)= sum of dy * xhat` and `dbeta (+)= sum of dy`.
/// `affine` and `relu` are what forward used: through a ReLU, only the `dy` where `y > 0` count.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    device: &Device,
    extents: &AxisExtents,
    statistics: Statistics,
    x: View<'_>,
    mut saved: View<'_>,
    affine: Option<Affine<'_>>,
    relu: bool,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
    gradients: Option<AffineGradients<'_>>,
) {
    let (len, channels) = (extents.len(), extents.axis);
    assert_eq!((x.len(), dy.len(), dx.len()), (len, len, len), "lengths of x, dy and dx");
    let saved = [(); 2].map(|()| saved.take(Format::F32, channels));
    affine.iter().for_each(|affine| affine.check(channels));
    gradients.iter().for_each(|gradients| gradients.check(channels));
    match device {
        Device::Cpu(cpu) => {
            let inputs = cpu::Inputs {
                statistics,
                x: x.host(),
                dy: dy.host(),
                saved: saved.map(|saved| saved.host()),
                after: Mapping { affine, relu },
            };
            cpu::backward(cpu, extents, &inputs, dx.host(), accumulate, gradients);
        }
        Device::Cuda(cuda) => {
            let inputs = cuda::Inputs { statistics, x, dy, saved, after: Mapping { affine, relu } };
            cuda::backward(cuda, extents, &inputs, dx, accumulate, gradients);
        }
    }
}

/// What becomes of the normalised values.
#[derive(Clone, Copy)]
struct Mapping<'a> {
    affine: Option<Affine<'a>>,
    relu: bool,
}

fn check_forward(extents: &AxisExtents, x: &View<'_>, affine: Option<&Affine<'_>>, y: &ViewMut<'_>) {
    assert_eq!((x.len(), y.len()), (extents.len(), extents.len()), "lengths of x and y");
    affine.iter().for_each(|affine| affine.check(extents.axis));
}
