//! Against the definition in double precision, finite differences, and Caffe's bookkeeping of the running sums.

use super::*;
use crate::testing::{
    FEW_ROUNDINGS, TestDevice, assert_same_bits, numeric_gradient, on_every_device, rectified, wide,
};
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

/// Channels for one block and for several, planes of one element, odd ones, and some that four-element packs fill. Of
/// the gradient of the first, two elements in all, only rounding is left.
const EXTENTS: [[usize; 3]; 10] = [
    [2, 1, 1],
    [3, 5, 7],
    [8, 33, 1],
    [900, 40, 1],
    [2, 3, 20_011],
    [16, 65, 49],
    [1, 2, 9],
    [5, 70, 64],
    [64, 3, 784],
    [40, 130, 225],
];

on_every_device! {
    fn training_normalises_saves_and_updates(on: &TestDevice) {
        for [outer, axis, inner] in EXTENTS {
            let e = AxisExtents { outer, axis, inner };
            let x: Vec<f32> = random(e.len(), 1).iter().map(|x| 3.0 * x + 2.0).collect();
            let (gamma, beta) = (random(axis, 2), random(axis, 3));
            let out = train(on, &e, &x, Some([&gamma, &beta]), false);
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

    /// What was given up comes back as it was, by the statistics that were saved.
    fn a_repeated_pass_is_the_same_bit_by_bit(on: &TestDevice) {
        let e = AxisExtents { outer: 3, axis: 5, inner: 37 };
        let [x, gamma, beta] = [e.len(), e.axis, e.axis].map(|len| random(len, len as u64));
        for relu in [false, true] {
            let out = train(on, &e, &x, Some([&gamma, &beta]), relu);
            let (y, saved) = (&out[..e.len()], &out[e.len()..e.len() + 2 * e.axis]);
            let unset = vec![f32::NAN; e.len()];
            let again = on.run_in_place([&x[..], saved, &gamma, &beta], &unset, |device, [x, saved, gamma, beta], y| {
                let affine = Affine { gamma: Some(gamma), beta: Some(beta) };
                repeat(device, &norm(&e, Statistics::Batch, affine, relu), x, None, y, saved);
            });
            assert_same_bits(&again, y);
        }
    }

    /// A deviation of a thousandth of the mean: a difference of squares would keep no digit of it.
    fn the_variance_survives_a_large_mean(on: &TestDevice) {
        for [outer, axis, inner] in [[4, 2, 5000], [4, 3, 500], [2000, 2, 1]] {
            let e = AxisExtents { outer, axis, inner };
            let x: Vec<f32> = random(e.len(), 1).iter().map(|x| 1000.0 + x).collect();
            let out = train(on, &e, &x, None, false);
            let [_, variance] = moments(&e, &wide(&x));
            let inv_std: Vec<f64> = variance.iter().map(|v| 1.0 / (v + f64::from(EPSILON)).sqrt()).collect();
            assert_close(&out[e.len() + axis..e.len() + 2 * axis], &inv_std, 1e-5, "inverse deviation");
        }
    }

    fn inference_divides_the_running_sums_by_their_weight(on: &TestDevice) {
        let e = AxisExtents { outer: 3, axis: 5, inner: 7 };
        let (x, mean) = (random(e.len(), 1), random(5, 2));
        let variance: Vec<f32> = random(5, 3).iter().map(|v| v + 1.5).collect();
        for factor in [0.0, 2.5] {
            let out = infer(on, &e, &x, None, false, [&mean, &variance], factor);
            let weight = if factor == 0.0 { 0.0 } else { 1.0 / f64::from(factor) };
            let scaled = |sums: &[f32]| wide(sums).iter().map(|sum| sum * weight).collect();
            let moments = [scaled(&mean), scaled(&variance)];
            let expected = reference(&e, &wide(&x), &moments, [&[1.0; 5], &[0.0; 5]]);
            assert_close(&out[..e.len()], &expected, FEW_ROUNDINGS, "y");
            assert_close(&out[e.len()..][..5], &moments[0], FEW_ROUNDINGS, "mean");
        }
    }

    fn backward_agrees_with_finite_differences(on: &TestDevice) {
        for [outer, axis, inner] in [[3, 4, 5], [6, 3, 1], [1, 2, 9]] {
            let e = AxisExtents { outer, axis, inner };
            let (x, dy) = (random(e.len(), 1), random(e.len(), 2));
            let (gamma, beta) = (random(axis, 3), random(axis, 4));
            let moments_of_x = moments(&e, &wide(&x));
            for statistics in [Statistics::Batch, Statistics::Running] {
                let saved = saved_of(&moments_of_x);
                let out = gradients(on, &e, statistics, [&x, &dy], &saved, [&gamma, &beta], false);
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

    fn backward_is_the_formula_at_every_size(on: &TestDevice) {
        for [outer, axis, inner] in EXTENTS.into_iter().skip(1) {
            let e = AxisExtents { outer, axis, inner };
            let (x, dy) = (random(e.len(), 1), random(e.len(), 2));
            let (gamma, moments) = (random(axis, 3), moments(&e, &wide(&x)));
            let (saved, beta) = (saved_of(&moments), vec![0.0; axis]);
            let out = gradients(on, &e, Statistics::Batch, [&x, &dy], &saved, [&gamma, &beta], false);
            let expected = formula(&e, [&x, &dy], &moments, &gamma);
            let (dx, rest) = expected.split_at(e.len());
            assert_close(&out[..e.len()], dx, 1e-5, "dx");
            assert_close(&out[e.len()..][..axis], &rest[..axis], 1e-5, "dgamma");
            assert_close(&out[e.len() + axis..], &rest[axis..], 1e-5, "dbeta");
        }
    }

    fn without_parameters_only_dx_is_written(on: &TestDevice) {
        for [outer, axis, inner] in EXTENTS.into_iter().skip(1) {
            let e = AxisExtents { outer, axis, inner };
            let (x, dy) = (random(e.len(), 1), random(e.len(), 2));
            let moments = moments(&e, &wide(&x));
            let saved = saved_of(&moments);
            let out = on.run([&x, &dy, &saved], e.len(), |device, [x, dy, saved], dx| {
                let norm = norm(&e, Statistics::Batch, Affine::default(), false);
                backward(device, &norm, x, saved, dy, dx.replaced(), AffineGradients::default(), None);
            });
            let expected = formula(&e, [&x, &dy], &moments, &vec![1.0; axis]);
            assert_close(&out, &expected[..e.len()], 1e-5, "dx");
        }
    }

    /// One channel is NaN; another's `y` is -0 in places, where the ReLU leaves it and lets no gradient pass.
    fn a_fused_relu_is_the_relu_that_follows(on: &TestDevice) {
        for [outer, axis, inner] in EXTENTS {
            let e = AxisExtents { outer, axis, inner };
            let (mut x, dy) = (random(e.len(), 1), random(e.len(), 2));
            let (mut gamma, mut beta) = (random(axis, 3), random(axis, 4));
            (gamma[0], beta[0]) = (0.0, -0.0);
            x[(axis - 1) * inner] = f32::NAN;
            for affine in [Some([&gamma[..], &beta]), None] {
                let (apart, fused) = (train(on, &e, &x, affine, false), train(on, &e, &x, affine, true));
                let (y, rest) = apart.split_at(e.len());
                assert_same_bits(&fused[..e.len()], &rectified(y));
                assert_same_bits(&fused[e.len()..], rest);
                let saved = &rest[..2 * axis];
                let passed: Vec<f32> =
                    y.iter().zip(&dy).map(|(&y, &dy)| if y > 0.0 { dy } else { 0.0 }).collect();
                let affine = affine.unwrap_or([&[], &[]]);
                for statistics in [Statistics::Batch, Statistics::Running] {
                    let of = |dy: &[f32], relu: bool| {
                        backward_once(on, &e, statistics, [&x, dy], saved, affine, relu)
                    };
                    let (fused, apart) = (of(&dy, true), of(&passed, false));
                    match on {
                        TestDevice::Cpu => assert_same_bits(&fused, &apart),
                        // A compiler may round other products and sums once here, twice there.
                        TestDevice::Cuda { .. } => assert_close_or_nan(&fused, &apart),
                    }
                }
            }
        }
    }

    /// What passes the ReLU is the gradient of the other summand, and arrives at the line.
    fn a_fused_sum_and_its_relu_are_those_that_follow(on: &TestDevice) {
        for [outer, axis, inner] in EXTENTS {
            let e = AxisExtents { outer, axis, inner };
            let [x, dy, added] = [1, 2, 5].map(|seed| random(e.len(), seed));
            let (gamma, beta) = (random(axis, 3), random(axis, 4));
            let affine = [&gamma[..], &beta];
            let apart = train(on, &e, &x, Some(affine), false);
            let (apart, rest) = apart.split_at(e.len());
            let sum: Vec<f32> = apart.iter().zip(&added).map(|(y, added)| y + added).collect();
            for relu in [false, true] {
                let y = if relu { rectified(&sum) } else { sum.clone() };
                let fused = train_with(on, &e, &x, Some(affine), relu, &added);
                assert_same_bits(&fused[..e.len()], &y);
                assert_same_bits(&fused[e.len()..], rest);
                let saved = &rest[..2 * axis];
                let passes = |(&y, &dy): (&f32, &f32)| if relu && y <= 0.0 { 0.0 } else { dy };
                let passed: Vec<f32> = y.iter().zip(&dy).map(passes).collect();
                let of_line = backward_once(on, &e, Statistics::Batch, [&x, &passed], saved, affine, false);
                for start in [None, Some(0.5)] {
                    let out = backward_of_sum(on, &e, [&x, &dy, &y], saved, affine, relu, start);
                    let (of_added, found) = out.split_at(e.len());
                    let old = start.unwrap_or(0.0);
                    let expected: Vec<f64> = passed.iter().map(|dy| f64::from(old + dy)).collect();
                    assert_close(of_added, &expected, FEW_ROUNDINGS, "gradient of what was added");
                    assert_close(found, &wide(&of_line), 1e-5, "gradients of the line");
                }
                let out = backward_of_sum(on, &e, [&x, &dy, &y], saved, affine, relu, Some(f32::NAN));
                assert_close(&out[e.len()..], &wide(&of_line), 1e-5, "gradients of the line alone");
            }
        }
    }

    fn a_relu_is_fused_with_running_statistics_too(on: &TestDevice) {
        for [outer, axis, inner] in EXTENTS {
            let e = AxisExtents { outer, axis, inner };
            let (x, mean, gamma) = (random(e.len(), 1), random(axis, 2), random(axis, 3));
            let variance: Vec<f32> = random(axis, 4).iter().map(|v| v + 1.5).collect();
            let with = |relu: bool| infer(on, &e, &x, Some(&gamma), relu, [&mean, &variance], 2.5);
            let (apart, fused) = (with(false), with(true));
            assert_same_bits(&fused[..e.len()], &rectified(&apart[..e.len()]));
            assert_same_bits(&fused[e.len()..], &apart[e.len()..]);
        }
    }
}

/// Close where both are numbers, and NaN in the same places.
fn assert_close_or_nan(found: &[f32], expected: &[f32]) {
    let numbers = |values: &[f32]| -> Vec<f32> {
        values.iter().map(|&value| if value.is_nan() { 0.0 } else { value }).collect()
    };
    assert!(found.iter().zip(expected).all(|(a, b)| a.is_nan() == b.is_nan()), "NaN in other places");
    assert_close(&numbers(found), &wide(&numbers(expected)), 1e-5, "gradients");
}

/// `y`, what is saved, and the running sums, all of which were 2 before.
fn train(on: &TestDevice, e: &AxisExtents, x: &[f32], affine: Option<[&[f32]; 2]>, relu: bool) -> Vec<f32> {
    train_with(on, e, x, affine, relu, &[])
}

/// The same with what is added, if it is not empty.
fn train_with(
    on: &TestDevice,
    e: &AxisExtents,
    x: &[f32],
    affine: Option<[&[f32]; 2]>,
    relu: bool,
    added: &[f32],
) -> Vec<f32> {
    let start = vec![2.0; e.len() + 4 * e.axis + 1];
    let [gamma, beta] = affine.unwrap_or([&[], &[]]);
    on.run_in_place([x, gamma, beta, added], &start, |device, [x, gamma, beta, added], out| {
        let affine = affine.map_or(Affine::default(), |_| Affine { gamma: Some(gamma), beta: Some(beta) });
        let added = (!added.is_empty()).then_some(added);
        run_forward(device, &norm(e, Statistics::Batch, affine, relu), x, added, out);
    })
}

/// `y` and what is saved, by running sums, which have to stay as they are.
fn infer(
    on: &TestDevice,
    e: &AxisExtents,
    x: &[f32],
    gamma: Option<&[f32]>,
    relu: bool,
    [mean, variance]: [&[f32]; 2],
    factor: f32,
) -> Vec<f32> {
    let unset = vec![f32::NAN; e.len() + 2 * e.axis];
    let running = [mean, variance, &[factor]].concat();
    let mut out = on.run_in_place(
        [x, gamma.unwrap_or(&[])],
        &[unset, running.clone()].concat(),
        |device, [x, gammas], out| {
            let affine = Affine { gamma: gamma.map(|_| gammas), beta: None };
            run_forward(device, &norm(e, Statistics::Running, affine, relu), x, None, out);
        },
    );
    assert_same_bits(&out.split_off(e.len() + 2 * e.axis), &running);
    out
}

fn norm<'a>(e: &AxisExtents, statistics: Statistics, affine: Affine<'a>, relu: bool) -> BatchNorm<'a> {
    BatchNorm { extents: *e, statistics, affine, relu, pool: None }
}

/// Forward with `y`, what is saved and the running sums one after the other.
fn run_forward(
    device: &Device,
    norm: &BatchNorm<'_>,
    x: View<'_>,
    added: Option<View<'_>>,
    mut out: ViewMut<'_>,
) {
    let (len, axis) = (norm.extents.len(), norm.extents.axis);
    let [y, saved, mean, variance, factor] =
        [len, 2 * axis, axis, axis, 1].map(|len| out.take(Format::F32, len));
    let running = RunningSums { mean, variance, factor, moving_average_fraction: 0.9 };
    forward(device, norm, EPSILON, x, added, y, saved, running);
}

/// What forward saves of a batch with these moments.
fn saved_of([mean, variance]: &[Vec<f64>; 2]) -> Vec<f32> {
    let inv_std = |v: &f64| (1.0 / (v + f64::from(EPSILON)).sqrt()) as f32;
    mean.iter().map(|&mean| mean as f32).chain(variance.iter().map(inv_std)).collect()
}

/// `dx`, `dgamma` and `dbeta`, one after the other.
fn gradients(
    on: &TestDevice,
    e: &AxisExtents,
    statistics: Statistics,
    [x, dy]: [&[f32]; 2],
    saved: &[f32],
    [gamma, beta]: [&[f32]; 2],
    relu: bool,
) -> Vec<f32> {
    let inputs = [x, dy, saved, gamma, beta];
    on.run_accumulating(inputs, e.len() + 2 * e.axis, |device, inputs, Out { mut to, accumulate }| {
        let [x, dy, saved, gamma, beta] = inputs;
        let [dx, dgamma, dbeta] = [e.len(), e.axis, e.axis].map(|len| to.take(Format::F32, len));
        let affine = Affine { gamma: Some(gamma), beta: Some(beta) };
        let [gamma, beta] = [dgamma, dbeta].map(|diff| Some(Out { to: diff, accumulate }));
        let (norm, dx) = (norm(e, statistics, affine, relu), Out { to: dx, accumulate });
        backward(device, &norm, x, saved, dy, dx, AffineGradients { gamma, beta }, None);
    })
}

/// The same for operands that may hold NaN; of an empty gamma, only `dx`.
fn backward_once(
    on: &TestDevice,
    e: &AxisExtents,
    statistics: Statistics,
    [x, dy]: [&[f32]; 2],
    saved: &[f32],
    [gamma, beta]: [&[f32]; 2],
    relu: bool,
) -> Vec<f32> {
    let inputs = [x, dy, saved, gamma, beta];
    on.run_in_place(inputs, &vec![1.0; e.len() + 2 * e.axis], |device, inputs, mut out| {
        let [x, dy, saved, gamma, beta] = inputs;
        let [dx, dgamma, dbeta] = [e.len(), e.axis, e.axis].map(|len| out.take(Format::F32, len));
        let has_affine = !gamma.is_empty();
        let [gamma, beta] = [gamma, beta].map(|view| has_affine.then_some(view));
        let norm = norm(e, statistics, Affine { gamma, beta }, relu);
        let [gamma, beta] = [dgamma, dbeta].map(|diff| has_affine.then_some(diff.added()));
        backward(device, &norm, x, saved, dy, dx.added(), AffineGradients { gamma, beta }, None);
    })
}

/// The gradient of what was added, which is to be added to `start`, replaced, or, if `start` is NaN, left alone; and
/// behind it what [`backward_once`] gives.
fn backward_of_sum(
    on: &TestDevice,
    e: &AxisExtents,
    [x, dy, y]: [&[f32]; 3],
    saved: &[f32],
    [gamma, beta]: [&[f32]; 2],
    relu: bool,
    start: Option<f32>,
) -> Vec<f32> {
    let old = [vec![start.unwrap_or(f32::NAN); e.len()], vec![1.0; e.len() + 2 * e.axis]].concat();
    let wanted = !start.is_some_and(f32::is_nan);
    let out = on.run_in_place([x, dy, y, saved, gamma, beta], &old, |device, inputs, mut out| {
        let [x, dy, y, saved, gamma, beta] = inputs;
        let [of_added, dx, dgamma, dbeta] =
            [e.len(), e.len(), e.axis, e.axis].map(|len| out.take(Format::F32, len));
        let norm = norm(e, Statistics::Batch, Affine { gamma: Some(gamma), beta: Some(beta) }, relu);
        let [gamma, beta] = [dgamma, dbeta].map(|diff| Some(diff.added()));
        let of_added = if start.is_some() { of_added.added() } else { of_added.replaced() };
        let added = Added { y: relu.then_some(y), gradient: wanted.then_some(of_added) };
        backward(device, &norm, x, saved, dy, dx.added(), AffineGradients { gamma, beta }, Some(added));
    });
    assert_eq!(wanted, !out[0].is_nan());
    out
}

/// The same by the formula of the module, in double precision.
fn formula(
    e: &AxisExtents,
    [x, dy]: [&[f32]; 2],
    [mean, variance]: &[Vec<f64>; 2],
    gamma: &[f32],
) -> Vec<f64> {
    let count = e.per_index() as f64;
    let channel = |i: usize| i / e.inner % e.axis;
    let inv_std = |c: usize| 1.0 / (variance[c] + f64::from(EPSILON)).sqrt();
    let xhat: Vec<f64> =
        wide(x).iter().enumerate().map(|(i, x)| (x - mean[channel(i)]) * inv_std(channel(i))).collect();
    let (mut dgamma, mut dbeta) = (vec![0.0; e.axis], vec![0.0; e.axis]);
    for (i, dy) in wide(dy).iter().enumerate() {
        dgamma[channel(i)] += dy * xhat[i];
        dbeta[channel(i)] += dy;
    }
    let dx = wide(dy).into_iter().enumerate().map(|(i, dy)| {
        let c = channel(i);
        f64::from(gamma[c]) * inv_std(c) * (dy - dbeta[c] / count - xhat[i] * dgamma[c] / count)
    });
    dx.chain(dgamma.iter().copied()).chain(dbeta.iter().copied()).collect()
}
