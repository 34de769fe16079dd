//! Against the definition in double precision, finite differences, and Caffe's bookkeeping of the running sums.

use super::*;
use crate::testing::{FEW_ROUNDINGS, numeric_gradient, run, run_accumulating, wide};
use tensor::testing::{assert_close, random};

const EPSILON: f32 = 1e-3;

fn moments(e: &AxisExtents, x: &[f64]) -> [Vec<f64>; 2] {
    let (mut mean, mut variance) = (vec![0.0; e.axis], vec![0.0; e.axis]);
    let count = e.per_index() as f64;
    let channel = |i: usize| i / e.inner % e.axis;
    x.iter().enumerate().for_each(|(i, x)| mean[channel(i)] += x / count);
    x.iter().enumerate().for_each(|(i, x)| variance[channel(i)] += (x - mean[channel(i)]).powi(2) / count);
    [mean, variance]
}

fn reference(e: &AxisExtents, x: &[f64], [mean, variance]: &[Vec<f64>; 2], affine: [&[f64]; 2]) -> Vec<f64> {
    let normalise = |(i, x): (usize, &f64)| {
        let channel = i / e.inner % e.axis;
        let xhat = (x - mean[channel]) / (variance[channel] + f64::from(EPSILON)).sqrt();
        affine[0][channel] * xhat + affine[1][channel]
    };
    x.iter().enumerate().map(normalise).collect()
}

const EXTENTS: [[usize; 3]; 6] = [[2, 1, 1], [3, 5, 7], [8, 33, 1], [2, 3, 20_011], [16, 65, 49], [1, 2, 9]];

#[test]
fn training_normalises_saves_and_updates() {
    for [outer, axis, inner] in EXTENTS {
        let e = AxisExtents { outer, axis, inner };
        let x: Vec<f32> = random(e.len(), 1).iter().map(|x| 3.0 * x + 2.0).collect();
        let (gamma, beta) = (random(axis, 2), random(axis, 3));
        let out = run(e.len() + 4 * axis + 1, |device, mut out| {
            let (y, rest) = out.host().split_at_mut(e.len());
            let (saved, running) = rest.split_at_mut(2 * axis);
            running.fill(2.0);
            train(device, &e, &x, Some((&gamma, &beta)), y, saved, running);
        });
        let [mean, variance] = moments(&e, &wide(&x));
        let affine = [&wide(&gamma)[..], &wide(&beta)];
        let y = reference(&e, &wide(&x), &[mean.clone(), variance.clone()], affine);
        assert_close(&out[..e.len()], &y, FEW_ROUNDINGS * 4.0, "y");
        let rest = &out[e.len()..];
        assert_close(&rest[..axis], &mean, FEW_ROUNDINGS, "mean");
        let inv_std: Vec<f64> = variance.iter().map(|v| 1.0 / (v + f64::from(EPSILON)).sqrt()).collect();
        assert_close(&rest[axis..2 * axis], &inv_std, FEW_ROUNDINGS, "inverse deviation");
        let count = e.per_index() as f64;
        let mut running: Vec<f64> = mean.iter().map(|mean| 2.0 * 0.9 + mean).collect();
        running.extend(variance.iter().map(|v| 2.0 * 0.9 + v * count / (count - 1.0)));
        running.push(2.0 * 0.9 + 1.0);
        assert_close(&rest[2 * axis..], &running, FEW_ROUNDINGS, "running sums");
    }
}

fn train(
    device: &Device,
    e: &AxisExtents,
    x: &[f32],
    affine: Option<(&Vec<f32>, &Vec<f32>)>,
    y: &mut [f32],
    saved: &mut [f32],
    running: &mut [f32],
) {
    let (mean, inv_std) = saved.split_at_mut(e.axis);
    let saved = SavedMut { mean: mean.into(), inv_std: inv_std.into() };
    let affine = affine.map(|(gamma, beta)| Affine { gamma: gamma.into(), beta: Some(beta.into()) });
    let (mean, rest) = running.split_at_mut(e.axis);
    let (variance, factor) = rest.split_at_mut(e.axis);
    let running = RunningMut {
        mean: mean.into(),
        variance: variance.into(),
        factor: factor.into(),
        moving_average_fraction: 0.9,
    };
    forward_training(device, e, EPSILON, x.into(), affine, y.into(), saved, Some(running));
}

/// A deviation of a thousandth of the mean: a difference of squares would keep no digit of it.
#[test]
fn the_variance_survives_a_large_mean() {
    let e = AxisExtents { outer: 4, axis: 2, inner: 5000 };
    let x: Vec<f32> = random(e.len(), 1).iter().map(|x| 1000.0 + x).collect();
    let (mut y, mut saved, mut running) = (vec![0.0; e.len()], vec![0.0; 4], vec![0.0; 5]);
    train(&Device::cpu(), &e, &x, None, &mut y, &mut saved, &mut running);
    let [_, variance] = moments(&e, &wide(&x));
    let inv_std: Vec<f64> = variance.iter().map(|v| 1.0 / (v + f64::from(EPSILON)).sqrt()).collect();
    assert_close(&saved[2..], &inv_std, 1e-5, "inverse deviation");
}

#[test]
fn inference_divides_the_running_sums_by_their_weight() {
    let e = AxisExtents { outer: 3, axis: 5, inner: 7 };
    let (x, mean) = (random(e.len(), 1), random(5, 2));
    let variance: Vec<f32> = random(5, 3).iter().map(|v| v + 1.5).collect();
    for factor in [0.0, 2.5] {
        let y = run(e.len(), |device, y| {
            let mut saved = [0.0; 10];
            let (saved_mean, inv_std) = saved.split_at_mut(5);
            let saved = SavedMut { mean: saved_mean.into(), inv_std: inv_std.into() };
            let factor = vec![factor];
            let running =
                Running { mean: (&mean).into(), variance: (&variance).into(), factor: (&factor).into() };
            forward_inference(device, &e, EPSILON, (&x).into(), None, running, y, saved);
        });
        let weight = if factor == 0.0 { 0.0 } else { 1.0 / f64::from(factor) };
        let scaled = |sums: &[f32]| wide(sums).iter().map(|sum| sum * weight).collect();
        let expected = reference(&e, &wide(&x), &[scaled(&mean), scaled(&variance)], [&[1.0; 5], &[0.0; 5]]);
        assert_close(&y, &expected, FEW_ROUNDINGS, "y");
    }
}

#[test]
fn backward_agrees_with_finite_differences() {
    for [outer, axis, inner] in [[3, 4, 5], [6, 3, 1], [1, 2, 9]] {
        let e = AxisExtents { outer, axis, inner };
        let (x, dy) = (random(e.len(), 1), random(e.len(), 2));
        let (gamma, beta) = (random(axis, 3), random(axis, 4));
        let moments_of_x = moments(&e, &wide(&x));
        for statistics in [Statistics::Batch, Statistics::Running] {
            let out = gradients(&e, statistics, [&x, &dy], &moments_of_x, &gamma);
            let of = |x: &[f64], gamma: &[f64], beta: &[f64]| {
                let batch = statistics == Statistics::Batch;
                let moments = if batch { moments(&e, x) } else { moments_of_x.clone() };
                reference(&e, x, &moments, [gamma, beta])
            };
            let (wx, wgamma, wbeta) = (wide(&x), wide(&gamma), wide(&beta));
            let expected = numeric_gradient(&x, &dy, |x| of(x, &wgamma, &wbeta));
            assert_close(&out[..e.len()], &expected, 1e-5, "dx");
            let expected = numeric_gradient(&gamma, &dy, |gamma| of(&wx, gamma, &wbeta));
            assert_close(&out[e.len()..e.len() + axis], &expected, 1e-5, "dgamma");
            let expected = numeric_gradient(&beta, &dy, |beta| of(&wx, &wgamma, beta));
            assert_close(&out[e.len() + axis..], &expected, 1e-5, "dbeta");
        }
    }
}

/// `dx`, `dgamma` and `dbeta`, one after the other.
fn gradients(
    e: &AxisExtents,
    statistics: Statistics,
    [x, dy]: [&Vec<f32>; 2],
    [mean, variance]: &[Vec<f64>; 2],
    gamma: &Vec<f32>,
) -> Vec<f32> {
    let mean: Vec<f32> = mean.iter().map(|&mean| mean as f32).collect();
    let inv_std: Vec<f32> = variance.iter().map(|v| (1.0 / (v + f64::from(EPSILON)).sqrt()) as f32).collect();
    let saved = Saved { mean: (&mean).into(), inv_std: (&inv_std).into() };
    run_accumulating(e.len() + 2 * e.axis, |device, mut out, accumulate| {
        let (dx, rest) = out.host().split_at_mut(e.len());
        let (dgamma, dbeta) = rest.split_at_mut(e.axis);
        let gradients =
            AffineGradients { dgamma: dgamma.into(), dbeta: Some((&mut *dbeta).into()), accumulate };
        let (x, dy, dx) = (x.into(), dy.into(), dx.into());
        backward(device, e, statistics, x, saved, Some(gamma.into()), dy, dx, accumulate, Some(gradients));
    })
}

#[test]
fn large_planes_give_the_same_on_any_number_of_threads() {
    let e = AxisExtents { outer: 3, axis: 4, inner: 20_011 };
    let (x, dy) = (random(e.len(), 1), random(e.len(), 2));
    let moments = moments(&e, &wide(&x));
    let gamma = random(4, 3);
    let out = gradients(&e, Statistics::Batch, [&x, &dy], &moments, &gamma);
    // The gradient with respect to x is orthogonal to constants and, up to epsilon, to x itself.
    let per_channel =
        |channel: usize| (0..3).flat_map(move |n| (0..20_011).map(move |i| (n * 4 + channel) * 20_011 + i));
    for channel in 0..4 {
        let sum: f64 = per_channel(channel).map(|i| f64::from(out[i])).sum();
        let size: f64 = per_channel(channel).map(|i| f64::from(out[i]).abs()).sum();
        assert!(sum.abs() <= 1e-5 * size, "channel {channel}: {sum} of {size}");
    }
}
