//! Batch normalisation on the CPU: one channel after the other, so that all passes but the first read from cache.

use super::{AffineGradients, BatchNorm, RunningSums, Statistics};
use crate::AxisExtents;
use crate::cpu_loops::{elements, for_each_channel, for_each_plane, inlined, put, put_if_any, rectified};
use crate::cpu_sums::{Itself, SquaredDeviation, Terms, WithDeviation, channel_sums};
use tensor::{Accumulate, Cpu, Out, View, ViewMut, cpu::Lanes};

pub(super) fn forward(
    cpu: &Cpu,
    norm: &BatchNorm<'_>,
    epsilon: f32,
    (x, added): (View<'_>, Option<View<'_>>),
    y: ViewMut<'_>,
    [mut mean, mut inv_std]: [ViewMut<'_>; 2],
    running: RunningSums<'_>,
) {
    let statistics = [mean.host(), inv_std.host()];
    match norm.statistics {
        Statistics::Batch => normalise_by_batch(cpu, norm, epsilon, (x, added), y, statistics, running),
        Statistics::Running => {
            running_statistics(running, epsilon, statistics);
            normalise(cpu, norm, (x, added), y, [mean.as_view(), inv_std.as_view()]);
        }
    }
}

/// Writes `y` by these statistics.
pub(super) fn normalise(
    cpu: &Cpu,
    norm: &BatchNorm<'_>,
    (x, added): (View<'_>, Option<View<'_>>),
    y: ViewMut<'_>,
    saved: [View<'_>; 2],
) {
    let (x, added) = (x.host::<f32>(), added.map(|added| added.host::<f32>()));
    let [mean, inv_std] = saved.map(|saved| saved.host::<f32>());
    inlined!(for_each_plane(cpu, &norm.extents, y.into_host()), |channel, range, y| {
        let line = Line::new(norm, channel, mean[channel], inv_std[channel]);
        line.apply(norm.relu, &x[range.clone()], added.map(|added| &added[range]), y);
    });
}

/// Writes `y`, and mean and inverse standard deviation of every channel, which the running statistics take up.
fn normalise_by_batch(
    cpu: &Cpu,
    norm: &BatchNorm<'_>,
    epsilon: f32,
    (x, added): (View<'_>, Option<View<'_>>),
    y: ViewMut<'_>,
    [mean, inv_std]: [&mut [f32]; 2],
    running: RunningSums<'_>,
) {
    let (x, added) = (x.host::<f32>(), added.map(|added| added.host::<f32>()));
    let (extents, variance, y) = (&norm.extents, &mut *inv_std, y.into_host());
    let outputs = [&mut *mean, &mut *variance];
    inlined!(for_each_channel(cpu, extents, y, outputs), |channel, mut y, [to_mean, to_variance]| {
        let [mean, variance] = moments(extents, x, channel);
        put_if_any(Accumulate::Replace, to_mean, mean);
        put_if_any(Accumulate::Replace, to_variance, variance);
        let line = Line::new(norm, channel, mean, inverse_deviation(variance, epsilon));
        for sample in 0..extents.outer {
            let range = extents.plane(sample, channel);
            line.apply(norm.relu, &x[range.clone()], added.map(|added| &added[range]), y.row(sample));
        }
    });
    update_running(extents, mean, variance, running);
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
    fn new(norm: &BatchNorm<'_>, channel: usize, mean: f32, inv_std: f32) -> Self {
        let [gamma, beta] = norm.affine.channel(channel);
        Self { mean, a: gamma * inv_std, b: beta }
    }

    #[inline(always)]
    fn at(self, x: f32) -> f32 {
        (x - self.mean) * self.a + self.b
    }

    #[inline(always)]
    fn apply(self, relu: bool, x: &[f32], added: Option<&[f32]>, y: &mut [f32]) {
        let elements = y.iter_mut().zip(x);
        match added {
            None => elements.for_each(|(y, &x)| *y = rectified(relu, self.at(x))),
            Some(added) => {
                elements.zip(added).for_each(|((y, &x), added)| *y = rectified(relu, self.at(x) + added));
            }
        }
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

/// [`WithDeviation`] of what a ReLU that left these outputs lets pass of the gradient.
impl Terms<3, 2> for Line {
    #[inline(always)]
    fn of<L: Lanes>(self, lanes: L, [x, dy, y]: [L::V; 3]) -> [L::V; 2] {
        let dy = lanes.where_positive(y, dy);
        [lanes.mul(dy, lanes.sub(x, lanes.splat(self.mean))), dy]
    }
    #[inline(always)]
    fn neutral(self) -> [f32; 3] {
        [self.mean, 0.0, 0.0]
    }
}

/// Mean and biased variance of a channel, in two passes: the textbook's one-pass difference of squares loses all digits
/// where the mean is large against the deviation.
#[inline(always)]
fn moments(extents: &AxisExtents, x: &[f32], channel: usize) -> [f32; 2] {
    let count = extents.per_index() as f64;
    let [sum] = channel_sums(extents, channel, [x], Itself);
    let mean = (sum / count) as f32;
    let [squares] = channel_sums(extents, channel, [x], SquaredDeviation { mean });
    [mean, (squares / count) as f32]
}

/// Folds the statistics of a mini-batch into the running sums.
fn update_running(extents: &AxisExtents, mean: &[f32], variance: &[f32], mut running: RunningSums<'_>) {
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
fn running_statistics(mut running: RunningSums<'_>, epsilon: f32, [mean, inv_std]: [&mut [f32]; 2]) {
    let factor = running.factor.host::<f32>()[0];
    let scale = if factor == 0.0 { 0.0 } else { 1.0 / factor };
    mean.iter_mut().zip(running.mean.host::<f32>()).for_each(|(to, sum)| *to = scale * *sum);
    for (to, sum) in inv_std.iter_mut().zip(running.variance.host::<f32>()) {
        *to = inverse_deviation(scale * *sum, epsilon);
    }
}

pub(super) fn backward(
    cpu: &Cpu,
    norm: &BatchNorm<'_>,
    (operands, y): ([View<'_>; 2], Option<View<'_>>),
    saved: [View<'_>; 2],
    dx: Out<'_>,
    gradients: AffineGradients<'_>,
) {
    let ([x, dy], y) = (operands.map(|view| view.host::<f32>()), y.map(|y| y.host::<f32>()));
    let ([mean, inv_std], (dx, accumulate)) = (saved.map(|saved| saved.host::<f32>()), dx.into_host());
    let [(gamma, dgamma), (beta, dbeta)] = [gradients.gamma, gradients.beta].map(elements);
    let extents = &norm.extents;
    inlined!(for_each_channel(cpu, extents, dx, [dgamma, dbeta]), |channel, mut dx, [dgamma, dbeta]| {
        let line = Line::new(norm, channel, mean[channel], inv_std[channel]);
        let [by_x, by_one] = match (norm.relu, y) {
            (true, Some(y)) => channel_sums(extents, channel, [x, dy, y], line),
            (true, None) => channel_sums(extents, channel, [x, dy], line),
            (false, _) => channel_sums(extents, channel, [x, dy], WithDeviation { mean: line.mean }),
        };
        let by_xhat = by_x * f64::from(inv_std[channel]);
        put_if_any(gamma, dgamma, by_xhat as f32);
        put_if_any(beta, dbeta, by_one as f32);
        let plane = Plane::new(norm, line, inv_std[channel], [by_xhat, by_one]);
        for sample in 0..extents.outer {
            let range = extents.plane(sample, channel);
            let operands = [x, dy, y.unwrap_or(x)].map(|operand| &operand[range.clone()]);
            let dx = dx.row(sample);
            match (norm.relu, y) {
                (true, Some(_)) => plane.apply(operands, dx, accumulate, |_, y| y > 0.0),
                (true, None) => plane.apply(operands, dx, accumulate, |x, _| line.at(x) > 0.0),
                (false, _) => plane.apply(operands, dx, accumulate, |_, _| true),
            }
        }
    });
}

/// The plane `dx = a dy + b (x - mean) + c` of one channel.
struct Plane {
    line: Line,
    b: f32,
    c: f32,
}

impl Plane {
    /// From the channel's sums of `dy * xhat` and of `dy`.
    #[inline(always)]
    fn new(norm: &BatchNorm<'_>, line: Line, inv_std: f32, [by_xhat, by_one]: [f64; 2]) -> Self {
        let per_element = match norm.statistics {
            Statistics::Running => return Self { line, b: 0.0, c: 0.0 },
            Statistics::Batch => f64::from(line.a) / norm.extents.per_index() as f64,
        };
        let b = (-per_element * by_xhat * f64::from(inv_std)) as f32;
        Self { line, b, c: (-per_element * by_one) as f32 }
    }

    /// `passes(x, y)` says whether the gradient arrives at all.
    #[inline(always)]
    fn apply(
        &self,
        [x, dy, y]: [&[f32]; 3],
        dx: &mut [f32],
        accumulate: Accumulate,
        passes: impl Fn(f32, f32) -> bool,
    ) {
        let &Self { line: Line { mean, a, .. }, b, c } = self;
        for (((dx, &x), &dy), &y) in dx.iter_mut().zip(x).zip(dy).zip(y) {
            let dy = if passes(x, y) { dy } else { 0.0 };
            put(accumulate, dx, a * dy + (b * (x - mean) + c));
        }
    }
}
