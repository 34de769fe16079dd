//! Softmax, loss and accuracy against plain loops and finite differences.

use super::loss::LossOptions;
use super::*;
use crate::testing::{FEW_ROUNDINGS, numeric_gradient, run, run_accumulating, wide};
use tensor::testing::{assert_close, random};

const EXTENTS: [[usize; 3]; 5] = [[1, 1, 1], [4, 10, 1], [33, 1000, 1], [2, 5, 200], [3, 7, 13]];

fn reference(e: &AxisExtents, x: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; e.per_index()];
    let column = |i: usize| i / (e.axis * e.inner) * e.inner + i % e.inner;
    x.iter().enumerate().for_each(|(i, x)| sums[column(i)] += x.exp());
    x.iter().enumerate().map(|(i, x)| x.exp() / sums[column(i)]).collect()
}

/// One label per prediction, cycling through the classes and, at the end, the ignored 255.
fn labels(e: &AxisExtents) -> Vec<f32> {
    (0..e.per_index()).map(|i| if i % 5 == 4 { 255.0 } else { (i * 7 % e.axis) as f32 }).collect()
}

#[test]
fn softmax_and_its_gradient() {
    for [outer, axis, inner] in EXTENTS {
        let e = AxisExtents { outer, axis, inner };
        let x: Vec<f32> = random(e.len(), 1).iter().map(|x| 5.0 * x).collect();
        let y = run(e.len(), |device, y| forward(device, &e, (&x).into(), y));
        assert_close(&y, &reference(&e, &wide(&x)), FEW_ROUNDINGS, "y");
        if e.len() < 500 {
            let dy = random(e.len(), 2);
            let dx = run_accumulating(e.len(), |device, dx, accumulate| {
                backward(device, &e, (&y).into(), (&dy).into(), dx, accumulate);
            });
            assert_close(&dx, &numeric_gradient(&x, &dy, |x| reference(&e, x)), 1e-5, "dx");
        }
    }
}

#[test]
fn large_scores_do_not_overflow() {
    let e = AxisExtents { outer: 1, axis: 3, inner: 1 };
    let x = vec![1000.0, 999.0, -1000.0];
    let y = run(3, |device, y| forward(device, &e, (&x).into(), y));
    assert_close(&y, &[0.731_058_578_63, 0.268_941_421_37, 0.0], FEW_ROUNDINGS, "y");
}

fn reference_loss(e: &AxisExtents, normaliser: f64, labels: &[f32], x: &[f64]) -> f64 {
    let p = reference(e, x);
    let term = |(i, &label): (usize, &f32)| {
        let class = label as usize;
        let index = (i / e.inner * e.axis + class) * e.inner + i % e.inner;
        if label == 255.0 { 0.0 } else { -p[index].ln() }
    };
    labels.iter().enumerate().map(term).sum::<f64>() / normaliser
}

#[test]
fn loss_and_its_gradient_under_every_normalization() {
    for [outer, axis, inner] in [[4, 10, 1], [3, 7, 13], [1, 2, 1]] {
        let e = AxisExtents { outer, axis, inner };
        let (x, labels) = (random(e.len(), 1), labels(&e));
        let valid = labels.iter().filter(|&&label| label != 255.0).count();
        for (normalization, normaliser) in [
            (Normalization::Full, outer * inner),
            (Normalization::Valid, valid),
            (Normalization::BatchSize, outer),
            (Normalization::None, 1),
        ] {
            let options = LossOptions { normalization, ignore_label: Some(255) };
            let out = run(e.len() + 1, |device, mut out| {
                let (p, loss) = out.host().split_at_mut(e.len());
                let operands = ((&x).into(), (&labels).into(), p.into(), loss.into());
                let (x, labels, p, loss) = operands;
                loss::forward(device, &e, &options, x, labels, p, loss).expect("labels are classes");
            });
            let loss_of = |x: &[f64]| vec![reference_loss(&e, normaliser as f64, &labels, x)];
            assert_close(&out[e.len()..], &loss_of(&wide(&x)), FEW_ROUNDINGS, "loss");
            let p = View::from(&out[..e.len()]);
            let dx = run_accumulating(e.len(), |device, dx, accumulate| {
                loss::backward(device, &e, &options, 0.3, p, (&labels).into(), dx, accumulate)
                    .expect("labels are classes");
            });
            assert_close(&dx, &numeric_gradient(&x, &[0.3], loss_of), 1e-5, "dx");
        }
    }
}

#[test]
fn an_impossible_class_costs_a_finite_loss() {
    let e = AxisExtents { outer: 1, axis: 2, inner: 1 };
    let (x, labels) = (vec![0.0, -1000.0], vec![1.0]);
    let (mut p, mut loss) = (vec![0.0; 2], vec![0.0]);
    let (out, options) = (ViewMut::from(&mut loss), LossOptions::default());
    let p = ViewMut::from(&mut p);
    loss::forward(&Device::cpu(), &e, &options, (&x).into(), (&labels).into(), p, out).expect("valid");
    assert!((loss[0] + f32::MIN_POSITIVE.ln()).abs() < 1e-4, "{}", loss[0]);
}

#[test]
fn labels_that_name_no_class_are_errors() {
    let e = AxisExtents { outer: 3, axis: 10, inner: 2 };
    let options = LossOptions { ignore_label: Some(-1), ..LossOptions::default() };
    let x = random(60, 1);
    for bad in [10.0, -2.0, 2.5, f32::NAN, f32::INFINITY, 1e20] {
        let mut labels = vec![-1.0; 6];
        labels[5] = bad;
        let (mut p, mut loss, mut dx) = (vec![0.0; 60], vec![7.0], vec![7.0; 60]);
        let device = Device::cpu();
        let (scores, classes) = (View::from(&x), View::from(&labels));
        let out = ViewMut::from(&mut loss);
        let error = loss::forward(&device, &e, &options, scores, classes, ViewMut::from(&mut p), out)
            .expect_err("no class");
        assert_eq!((error.sample, error.classes), (2, 10));
        assert_eq!(error.to_string(), format!("the label {bad} of sample 2 is none of the classes 0 to 9"));
        let out = ViewMut::from(&mut dx);
        loss::backward(&device, &e, &options, 1.0, (&p).into(), classes, out, Accumulate::Replace)
            .expect_err("no class");
        let mut share = vec![7.0];
        accuracy::forward(&device, &e, 1, Some(-1), scores, classes, ViewMut::from(&mut share))
            .expect_err("no class");
        assert!(loss[0] == 7.0 && share[0] == 7.0 && dx.iter().all(|&dx| dx == 7.0), "nothing written");
    }
}

#[test]
fn accuracy_counts_the_label_among_the_best() {
    let e = AxisExtents { outer: 2, axis: 3, inner: 2 };
    // Predictions by column: scores (3, 2, 1), (1, 1, 1), (0, NaN, 5), (1, 2, 3).
    let scores = vec![3.0, 1.0, 2.0, 1.0, 1.0, 1.0, 0.0, 1.0, f32::NAN, 2.0, 5.0, 3.0];
    let labels = vec![0.0, 1.0, 1.0, 9.0];
    let share = |top_k: usize| {
        run(1, |device, out| {
            accuracy::forward(device, &e, top_k, Some(9), (&scores).into(), (&labels).into(), out)
                .expect("labels are classes");
        })[0]
    };
    // Of equal scores the higher class is first, so class 1 of the second prediction is the second best.
    assert_eq!([share(1), share(2), share(3)], [1.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0]);
    let ignored = vec![9.0; 4];
    let none = run(1, |device, out| {
        accuracy::forward(device, &e, 1, Some(9), (&scores).into(), (&ignored).into(), out).expect("ignored");
    });
    assert_eq!(none, [0.0]);
}
