//! Batch normalisation on the CPU: one channel after the other, so that all passes but the first read from cache.

use super::{AffineGradients, BatchNorm, RunningSums, Statistics};
use crate::AxisExtents;
use crate::cpu_loops::{elements, for_each_channel, for_each_plane, inlined, put, put_if_any, rectified};
use crate::cpu_sums::channel_sums;
use tensor::{Accumulate, Cpu, Out, View, ViewMut};

/// Writes `y`, and mean and inverse standard deviation of every channel: those of the mini-batch, which the running
/// ones take up, or these.
pub(super) fn forward(
    cpu: &Cpu,
    norm: &BatchNorm<'_>,
    epsilon: f32,
    (x, added): (View<'_>, Option<View<'_>>),
    y: ViewMut<'_>,
    ([mut mean, mut inv_std], _): ([ViewMut<'_>; 2], Option<ViewMut<'_>>),
    running: RunningSums<'_>,
) {
    if norm.statistics == Statistics::Running {
        running_statistics(running, epsilon, [mean.host(), inv_std.host()]);
        return normalise(cpu, norm, (x, added), y, [mean.as_view(), inv_std.as_view()]);
    }
    let (x, added) = (x.host::<f32>(), added.map(|added| added.host::<f32>()));
    let (extents, mean, inv_std) = (&norm.extents, mean.host::<f32>(), inv_std.host::<f32>());
    let (variance, y) = (&mut *inv_std, y.into_host());
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

/// Mean and biased variance of a channel, in two passes: the textbook's one-pass difference of squares loses all digits
/// where the mean is large against the deviation.
#[inline(always)]
fn moments(extents: &AxisExtents, x: &[f32], channel: usize) -> [f32; 2] {
    let count = extents.per_index() as f64;
    let [sum] = inlined!(channel_sums(extents, channel, [x]), |x| x);
    let mean = (sum / count) as f32;
    let [squares] = inlined!(channel_sums(extents, channel, [x]), |[x]| [(x - mean) * (x - mean)]);
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
    ([x, dy], y): ([View<'_>; 2], Option<View<'_>>),
    (saved, _): ([View<'_>; 2], Option<View<'_>>),
    (dx, _): (Out<'_>, Option<ViewMut<'_>>),
    gradients: AffineGradients<'_>,
) {
    let operands = [x, dy, y.unwrap_or(x)].map(|view| view.host::<f32>());
    let saved = saved.map(|saved| saved.host::<f32>());
    match (norm.relu, y) {
        (false, _) => backward_where(cpu, norm, operands, saved, dx, gradients, |_, _, _| true),
        (true, Some(_)) => backward_where(cpu, norm, operands, saved, dx, gradients, |_, _, y| y > 0.0),
        (true, None) => {
            backward_where(cpu, norm, operands, saved, dx, gradients, |line, x, _| line.at(x) > 0.0);
        }
    }
}

/// `passes(line, x, y)` says whether the gradient arrives at all. Then `dx = a dy + b (x - mean) + c`.
fn backward_where(
    cpu: &Cpu,
    norm: &BatchNorm<'_>,
    operands: [&[f32]; 3],
    [mean, inv_std]: [&[f32]; 2],
    dx: Out<'_>,
    gradients: AffineGradients<'_>,
    passes: impl Fn(Line, f32, f32) -> bool + Sync,
) {
    let (extents, (dx, accumulate)) = (&norm.extents, dx.into_host());
    let [(gamma, dgamma), (beta, dbeta)] = [gradients.gamma, gradients.beta].map(elements);
    inlined!(for_each_channel(cpu, extents, dx, [dgamma, dbeta]), |channel, mut dx, [dgamma, dbeta]| {
        let line @ Line { mean, a, .. } = Line::new(norm, channel, mean[channel], inv_std[channel]);
        let inv_std = f64::from(inv_std[channel]);
        let arriving = |x, dy, y| if passes(line, x, y) { dy } else { 0.0 };
        let [by_x, by_one] = inlined!(channel_sums(extents, channel, operands), |[x, dy, y]| {
            let dy = arriving(x, dy, y);
            [dy * (x - mean), dy]
        });
        put_if_any(gamma, dgamma, (by_x * inv_std) as f32);
        put_if_any(beta, dbeta, by_one as f32);
        let [b, c] = match norm.statistics {
            Statistics::Running => [0.0; 2],
            Statistics::Batch => {
                let per_element = f64::from(a) / extents.per_index() as f64;
                [by_x * inv_std * inv_std, by_one].map(|sum| (-per_element * sum) as f32)
            }
        };
        for sample in 0..extents.outer {
            let [x, dy, y] = operands.map(|operand| &operand[extents.plane(sample, channel)]);
            for (((dx, &x), &dy), &y) in dx.row(sample).iter_mut().zip(x).zip(dy).zip(y) {
                put(accumulate, dx, a * arriving(x, dy, y) + (b * (x - mean) + c));
            }
        }
    });
}
