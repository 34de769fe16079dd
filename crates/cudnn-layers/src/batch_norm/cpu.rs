//! Batch normalisation on the CPU: one channel after the other, so that all passes but the first read from cache.

use super::{AffineGradients, Mapping, Running, RunningMut, Statistics};
use crate::{
    AxisExtents,
    cpu_loops::{ChannelMut, for_each_channel, for_each_run, items_per_task, put, rectified},
    cpu_sums::{Itself, SquaredDeviation, Terms, WithDeviation, channel_sums},
};
use tensor::{Accumulate, Cpu, cpu::simd::Lanes};

#[allow(clippy::too_many_arguments)]
pub(super) fn forward_training(
    cpu: &Cpu,
    extents: &AxisExtents,
    epsilon: f32,
    x: &[f32],
    after: Mapping<'_>,
    y: &mut [f32],
    [mean, inv_std]: [&mut [f32]; 2],
    running: Option<RunningMut<'_>>,
) {
    for_each_channel(
        cpu,
        extents,
        y,
        [&mut *mean, &mut *inv_std],
        #[inline(always)]
        |channel, mut y, [mean, inv_std]| {
            // `inv_std` holds the variance until the running statistics have taken it.
            (*mean, *inv_std) = moments(extents, x, channel);
            let line = Line::new(*mean, inverse_deviation(*inv_std, epsilon), &after, channel);
            for sample in 0..extents.outer {
                line.apply(after.relu, plane(extents, x, sample, channel), y.plane(sample));
            }
        },
    );
    if let Some(running) = running {
        update_running(extents, mean, inv_std, running);
    }
    inv_std.iter_mut().for_each(|value| *value = inverse_deviation(*value, epsilon));
}

#[inline(always)]
fn inverse_deviation(variance: f32, epsilon: f32) -> f32 {
    1.0 / (variance + epsilon).sqrt()
}

/// The line `y = a (x - mean) + b` of one channel. Backward rounds it as forward does: the signs have to agree.
#[derive(Clone, Copy)]
struct Line {
    mean: f32,
    a: f32,
    b: f32,
}

impl Line {
    #[inline(always)]
    fn new(mean: f32, inv_std: f32, after: &Mapping<'_>, channel: usize) -> Self {
        let [gamma, beta] = after.affine.map_or([1.0, 0.0], |affine| affine.channel(channel));
        Self { mean, a: gamma * inv_std, b: beta }
    }

    #[inline(always)]
    fn at(self, x: f32) -> f32 {
        (x - self.mean) * self.a + self.b
    }

    #[inline(always)]
    fn apply(self, relu: bool, x: &[f32], y: &mut [f32]) {
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = rectified(relu, self.at(x)));
    }
}

/// [`WithDeviation`] of what a ReLU behind the line lets pass of the gradient.
impl Terms<2, 2> for Line {
    #[inline(always)]
    fn of<L: Lanes>(self, lanes: L, [x, dy]: [L::V; 2]) -> [L::V; 2] {
        let deviation = lanes.sub(x, lanes.splat(self.mean));
        let y = lanes.add(lanes.mul(deviation, lanes.splat(self.a)), lanes.splat(self.b));
        let dy = lanes.where_positive(y, dy);
        [lanes.mul(dy, deviation), dy]
    }
    #[inline(always)]
    fn neutral(self) -> [f32; 2] {
        [self.mean, 0.0]
    }
}

#[inline(always)]
fn plane<'a>(extents: &AxisExtents, blob: &'a [f32], sample: usize, channel: usize) -> &'a [f32] {
    let start = (sample * extents.axis + channel) * extents.inner;
    &blob[start..start + extents.inner]
}

/// Mean and biased variance of a channel, in two passes: the textbook's one-pass difference of squares loses all digits
/// where the mean is large against the deviation.
#[inline(always)]
fn moments(extents: &AxisExtents, x: &[f32], channel: usize) -> (f32, f32) {
    let count = extents.per_index() as f64;
    let [sum] = channel_sums(extents, channel, [x], Itself);
    let mean = (sum / count) as f32;
    let [squares] = channel_sums(extents, channel, [x], SquaredDeviation { mean });
    (mean, (squares / count) as f32)
}

/// Folds the statistics of a mini-batch into the running sums.
fn update_running(extents: &AxisExtents, mean: &[f32], variance: &[f32], mut running: RunningMut<'_>) {
    let lens = (running.mean.len(), running.variance.len(), running.factor.len());
    assert_eq!(lens, (extents.axis, extents.axis, 1), "lengths of the running statistics");
    let (fraction, count) = (running.moving_average_fraction, extents.per_index() as f32);
    let unbiased = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
    running.mean.host::<f32>().iter_mut().zip(mean).for_each(|(to, &mean)| *to = fraction * *to + mean);
    for (to, &variance) in running.variance.host::<f32>().iter_mut().zip(variance) {
        *to = fraction * *to + unbiased * variance;
    }
    let factor = &mut running.factor.host::<f32>()[0];
    *factor = fraction * *factor + 1.0;
}

/// The mean and inverse standard deviation that the running sums stand for; with a factor of 0 (never trained) mean and
/// variance are 0, as in Caffe.
pub(super) fn running_statistics(running: Running<'_>, epsilon: f32, [mean, inv_std]: [&mut [f32]; 2]) {
    let factor = running.factor.host::<f32>()[0];
    let scale = if factor == 0.0 { 0.0 } else { 1.0 / factor };
    mean.iter_mut().zip(running.mean.host::<f32>()).for_each(|(to, &sum)| *to = scale * sum);
    for (to, &sum) in inv_std.iter_mut().zip(running.variance.host::<f32>()) {
        *to = inverse_deviation(scale * sum, epsilon);
    }
}

pub(super) fn normalise(
    cpu: &Cpu,
    extents: &AxisExtents,
    x: &[f32],
    after: Mapping<'_>,
    y: &mut [f32],
    [mean, inv_std]: [&[f32]; 2],
) {
    for_each_run(
        cpu,
        extents.outer * extents.axis,
        items_per_task(extents.inner),
        [y],
        #[inline(always)]
        |planes, [y]| {
            for (plane, y) in planes.zip(y.chunks_exact_mut(extents.inner.max(1))) {
                let channel = plane % extents.axis;
                let x = &x[plane * extents.inner..(plane + 1) * extents.inner];
                Line::new(mean[channel], inv_std[channel], &after, channel).apply(after.relu, x, y);
            }
        },
    );
}

/// What backward reads.
pub(super) struct Inputs<'a> {
    pub(super) statistics: Statistics,
    pub(super) x: &'a [f32],
    pub(super) dy: &'a [f32],
    pub(super) saved: [&'a [f32]; 2],
    pub(super) after: Mapping<'a>,
}

pub(super) fn backward(
    cpu: &Cpu,
    extents: &AxisExtents,
    inputs: &Inputs<'_>,
    dx: &mut [f32],
    accumulate: Accumulate,
    gradients: Option<AffineGradients<'_>>,
) {
    let body = |channel: usize, dx: ChannelMut<'_>| inputs.channel(extents, channel, dx, accumulate);
    match gradients {
        Some(AffineGradients { mut dgamma, dbeta: Some(mut dbeta), accumulate }) => for_each_channel(
            cpu,
            extents,
            dx,
            [dgamma.host(), dbeta.host()],
            #[inline(always)]
            |channel, dx, [dgamma, dbeta]| {
                let [by_beta, by_gamma] = body(channel, dx);
                put(accumulate, dgamma, by_gamma);
                put(accumulate, dbeta, by_beta);
            },
        ),
        Some(AffineGradients { mut dgamma, dbeta: None, accumulate }) => for_each_channel(
            cpu,
            extents,
            dx,
            [dgamma.host()],
            #[inline(always)]
            |channel, dx, [dgamma]| put(accumulate, dgamma, body(channel, dx)[1]),
        ),
        None => for_each_channel(
            cpu,
            extents,
            dx,
            [],
            #[inline(always)]
            |channel, dx, []| _ = body(channel, dx),
        ),
    }
}

/// The plane `dx = a dy + b (x - mean) + c` of one channel.
struct Gradient {
    mean: f32,
    a: f32,
    b: f32,
    c: f32,
}

impl Inputs<'_> {
    /// Writes one channel of `dx`; its gradients with respect to beta and gamma.
    #[inline(always)]
    fn channel(
        &self,
        extents: &AxisExtents,
        channel: usize,
        mut dx: ChannelMut<'_>,
        accumulate: Accumulate,
    ) -> [f32; 2] {
        let line = self.line(channel);
        let sums = self.sums(extents, channel, line);
        let gradient = self.gradient(extents, channel, line, sums);
        for sample in 0..extents.outer {
            let x = plane(extents, self.x, sample, channel);
            let dy = plane(extents, self.dy, sample, channel);
            let dx = dx.plane(sample);
            match self.after.relu {
                true => gradient.apply([x, dy], dx, accumulate, |x| line.at(x) > 0.0),
                false => gradient.apply([x, dy], dx, accumulate, |_| true),
            }
        }
        sums.map(|sum| sum as f32)
    }

    /// What forward computed.
    #[inline(always)]
    fn line(&self, channel: usize) -> Line {
        Line::new(self.saved[0][channel], self.inv_std(channel), &self.after, channel)
    }

    #[inline(always)]
    fn inv_std(&self, channel: usize) -> f32 {
        self.saved[1][channel]
    }

    /// The channel's sums of `dy` and of `dy * xhat`.
    #[inline(always)]
    fn sums(&self, extents: &AxisExtents, channel: usize, line: Line) -> [f64; 2] {
        let blobs = [self.x, self.dy];
        let [by_x, by_one] = match self.after.relu {
            true => channel_sums(extents, channel, blobs, line),
            false => channel_sums(extents, channel, blobs, WithDeviation { mean: line.mean }),
        };
        [by_one, by_x * f64::from(self.inv_std(channel))]
    }

    #[inline(always)]
    fn gradient(
        &self,
        extents: &AxisExtents,
        channel: usize,
        Line { mean, a, .. }: Line,
        [sum, sum_xhat]: [f64; 2],
    ) -> Gradient {
        match self.statistics {
            Statistics::Running => Gradient { mean, a, b: 0.0, c: 0.0 },
            Statistics::Batch => {
                let per_element = f64::from(a) / extents.per_index() as f64;
                let b = (-per_element * sum_xhat * f64::from(self.inv_std(channel))) as f32;
                Gradient { mean, a, b, c: (-per_element * sum) as f32 }
            }
        }
    }
}

impl Gradient {
    /// `passes(x)` says whether the gradient arrives at all.
    #[inline(always)]
    fn apply(
        &self,
        [x, dy]: [&[f32]; 2],
        dx: &mut [f32],
        accumulate: Accumulate,
        passes: impl Fn(f32) -> bool,
    ) {
        let &Self { mean, a, b, c } = self;
        for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
            let dy = if passes(x) { dy } else { 0.0 };
            put(accumulate, dx, a * dy + (b * (x - mean) + c));
        }
    }
}
