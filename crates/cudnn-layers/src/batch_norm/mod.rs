//! Batch normalisation per channel: `xhat = (x - mean) * inv_std`, `y = gamma xhat + beta`.
//!
//! * Training: mean and variance (biased, divided by `m = n * pixels`) of the whole mini-batch;
//!   `inv_std = 1 / sqrt(variance + epsilon)`. Both are saved for backward. gamma and beta are optional: without them
//!   this is Caffe's BatchNorm, with them NVIDIA's `scale_bias`.
//! * Running statistics are Caffe's three blobs: with `f = moving_average_fraction`, `mean = f * mean + batch mean`,
//!   `variance = f * variance + m / (m - 1) * batch variance`, `factor = f * factor + 1`. Inference divides the first
//!   two by the third.
//! * Backward needs the bottom data and what forward saved. With batch statistics
//!   `dx = gamma * inv_std * (dy - mean(dy) - xhat * mean(dy * xhat))`, with running ones `dx = gamma * inv_std * dy`.
//!
//! A ReLU that follows can be part of both passes: `y = max(gamma xhat + beta, 0)`. Backward finds the sign of `y`
//! again from `x`, by the same operations, so that neither `y` nor a pass over its gradient is needed.
//!
//! So can the sum with another blob before it: `y = max(gamma xhat + beta + added, 0)`, the end of a residual network's
//! block. Then backward sees the sign in `y` itself.
//!
//! So can a maximum pooling behind all, on a GPU and in NHWC, with windows of 3 x 3 pixels, 2 apart: then what is
//! normalised lies nowhere, nor does its gradient. What [`pooling`] says of winners holds here, too.
//!
//! Not in place: backward needs `x`. On the CPU one channel is one task, whose planes stay in cache between its passes;
//! on a GPU the same holds for channels that fit.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

pub use crate::scale::{Affine, AffineGradients};
pub use cuda::channel_grid;

use crate::activation::{self, Activation};
use crate::{AxisExtents, copy, pooling};
use tensor::{Accumulate, Device, Format, Out, PoolGeometry, Space, View, ViewMut};

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
    /// A maximum pooling that is, too: it [has to suit](can_pool), and nothing is added.
    pub pool: Option<PoolGeometry>,
}

impl BatchNorm<'_> {
    /// The number of channels.
    fn check(&self, x: View<'_>, added: Option<View<'_>>, y: View<'_>) -> usize {
        let (len, y_len) = (self.extents.len(), self.pool.map_or(self.extents.len(), |pool| pool.y_len()));
        let lens = [x, added.unwrap_or(x), y].map(|view| view.len());
        assert_eq!(lens, [len, len, y_len], "lengths of x, what is added, and y");
        let fits = |pool: PoolGeometry| {
            can_pool(pool.window, pool.stride)
                && self.statistics == Statistics::Batch
                && (pool.x_len(), pool.c, self.extents.inner) == (len, self.extents.axis, 1)
        };
        assert!(self.pool.is_none_or(fits), "a pooling {:?} of {:?} in NHWC", self.pool, self.extents);
        self.affine.check(self.extents.axis);
        self.extents.axis
    }
}

/// Whether a maximum pooling with such windows can be part of the passes.
pub fn can_pool(window: [usize; 2], stride: [usize; 2]) -> bool {
    (window, stride) == ([3; 2], [2; 2])
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

/// What backward needs to know if forward added another blob.
#[derive(Debug)]
pub struct Added<'a> {
    /// The output, if a ReLU is part of the passes.
    pub y: Option<View<'a>>,
    /// Where the other blob's gradient goes, if it is wanted.
    pub gradient: Option<Out<'a>>,
}

/// What forward saves for backward: mean and one over the standard deviation, an element per channel each, and the
/// [winners](pooling::mask) of a pooling.
pub fn saved(extents: &AxisExtents, pool: Option<&PoolGeometry>) -> Space {
    let of_channel = Space::of::<f32>(extents.axis);
    Space::all_of([of_channel, of_channel, pool.map_or(Space::NONE, pooling::mask)])
}

/// Normalises `x` to `y`, with `added` on top of it if there is one, saves the statistics ([`saved`]), and updates the
/// running ones with those of a mini-batch.
#[allow(clippy::too_many_arguments)]
pub fn forward(
    device: &Device,
    norm: &BatchNorm<'_>,
    epsilon: f32,
    x: View<'_>,
    added: Option<View<'_>>,
    y: ViewMut<'_>,
    mut saved: ViewMut<'_>,
    running: RunningSums<'_>,
) {
    let channels = norm.check(x, added, y.as_view());
    assert!(norm.pool.is_none() || added.is_none(), "nothing is added to what is pooled");
    let lens = [&running.mean, &running.variance, &running.factor].map(ViewMut::len);
    assert_eq!(lens, [channels, channels, 1], "lengths of the running statistics");
    let of_channels = [(); 2].map(|()| saved.take(Format::F32, channels));
    let winners = norm.pool.map(|pool| saved.take(Format::U8, pooling::mask(&pool).bytes()));
    on_device!(device, forward(norm, epsilon, (x, added), y, (of_channels, winners), running));
}

/// Normalises `x` to `y` once more, bit by bit as [`forward`] has, by what that `saved`: one pass over `x`.
pub fn repeat(
    device: &Device,
    norm: &BatchNorm<'_>,
    x: View<'_>,
    added: Option<View<'_>>,
    y: ViewMut<'_>,
    mut saved: View<'_>,
) {
    let channels = norm.check(x, added, y.as_view());
    let saved = [(); 2].map(|()| saved.take(Format::F32, channels));
    on_device!(device, normalise(norm, (x, added), y, saved));
}

/// `dx (+)= ...` (see the module), `dgamma (+)= sum of dy * xhat` and `dbeta (+)= sum of dy`. Through a ReLU, only the
/// `dy` where `y > 0` count; these are also the gradient of what was `added`.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    device: &Device,
    norm: &BatchNorm<'_>,
    x: View<'_>,
    mut saved: View<'_>,
    dy: View<'_>,
    dx: Out<'_>,
    gradients: AffineGradients<'_>,
    added: Option<Added<'_>>,
) {
    let channels = norm.check(x, Some(dx.to.as_view()), dy);
    let y = added.as_ref().and_then(|added| added.y);
    assert!(added.is_none() || y.is_some() == norm.relu, "y is seen where there is a ReLU");
    // Gives the other blob its gradient, unless the pass that sums channels will.
    let passed = added.and_then(|added| added.gradient).and_then(|gradient| {
        match (y, device, gradient.accumulate) {
            (None, ..) => copy::copy(device, dy, gradient),
            (Some(_), Device::Cuda(_), Accumulate::Replace) => return Some(gradient.to),
            (Some(y), ..) => activation::backward(device, Activation::RELU, y, Some(dy), gradient),
        }
        None
    });
    let others = [y, passed.as_ref().map(ViewMut::as_view)];
    let len = |other: &View<'_>| assert_eq!(other.len(), x.len(), "lengths of y and what was added");
    others.iter().flatten().for_each(len);
    gradients.check(channels);
    let of_channels = [(); 2].map(|()| saved.take(Format::F32, channels));
    let winners = norm.pool.map(|pool| saved.take(Format::U8, pooling::mask(&pool).bytes()));
    on_device!(device, backward(norm, ([x, dy], y), (of_channels, winners), (dx, passed), gradients));
}
