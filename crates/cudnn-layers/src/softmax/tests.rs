//! Softmax, loss and accuracy against plain loops and finite differences.

use super::*;
use crate::testing::{FAULTS, FEW_ROUNDINGS, TestDevice, numeric_gradient, on_every_device, wide};
use std::sync::PoisonError;
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

fn reference_loss(e: &AxisExtents, normaliser: f64, labels: &[f32], x: &[f64]) -> f64 {
    let p = reference(e, x);
    let term = |(i, &label): (usize, &f32)| {
        let class = label as usize;
        let index = (i / e.inner * e.axis + class) * e.inner + i % e.inner;
        if label == 255.0 { 0.0 } else { -p[index].ln() }
    };
    labels.iter().enumerate().map(term).sum::<f64>() / normaliser
}

/// What is saved, and the loss.
fn loss_of(
    on: &TestDevice,
    e: &AxisExtents,
    options: &LossOptions,
    x: &[f32],
    labels: &[f32],
) -> [Vec<f32>; 2] {
    let mut saved = on.run([x, labels], e.len() + 2, |device, [x, labels], mut out| {
        let saved = out.take(Format::F32, e.len() + 1);
        super::loss(device, e, options, x, labels, saved, out).expect("labels are classes");
    });
    let loss = saved.split_off(e.len() + 1);
    [saved, loss]
}

/// The error that an operation returned or, on a GPU, shows when it is waited for.
fn error_of(device: &Device, result: Result<(), LabelError>) -> LabelError {
    device.check().expect("the GPU works");
    result.err().or_else(|| labels::device_fault(device)).expect("a label is no class")
}

on_every_device! {
    fn softmax_and_its_gradient(on: &TestDevice) {
        for [outer, axis, inner] in EXTENTS {
            let e = AxisExtents { outer, axis, inner };
            let x: Vec<f32> = random(e.len(), 1).iter().map(|x| 5.0 * x).collect();
            let y = on.run([&x], e.len(), |device, [x], y| forward(device, &e, x, y));
            assert_close(&y, &reference(&e, &wide(&x)), FEW_ROUNDINGS, "y");
            if e.len() < 500 {
                let dy = random(e.len(), 2);
                let dx = on.run_accumulating([&y, &dy], e.len(), |device, [y, dy], dx| {
                    backward(device, &e, y, dy, dx);
                });
                assert_close(&dx, &numeric_gradient(&x, &dy, |x| reference(&e, x)), 1e-5, "dx");
            }
        }
    }

    fn large_scores_do_not_overflow(on: &TestDevice) {
        let e = AxisExtents { outer: 1, axis: 3, inner: 1 };
        let y = on.run([&[1000.0, 999.0, -1000.0]], 3, |device, [x], y| forward(device, &e, x, y));
        assert_close(&y, &[0.731_058_578_63, 0.268_941_421_37, 0.0], FEW_ROUNDINGS, "y");
    }

    fn loss_and_its_gradient_under_every_normalization(on: &TestDevice) {
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
                let options = LossOptions { normalization, ignore_label: Some(255), smoothing: 0.0 };
                let [p, loss] = loss_of(on, &e, &options, &x, &labels);
                let expected = |x: &[f64]| vec![reference_loss(&e, normaliser as f64, &labels, x)];
                assert_close(&loss, &expected(&wide(&x)), FEW_ROUNDINGS, "loss");
                let dx = on.run_accumulating([&p, &labels], e.len(), |device, [p, labels], dx| {
                    loss_backward(device, &e, &options, 0.3, p, labels, dx);
                });
                assert_close(&dx, &numeric_gradient(&x, &[0.3], expected), 1e-5, "dx");
            }
        }
    }

    /// Against Szegedy et al. 2016, equation of section 7: a mixture of the label with the uniform distribution.
    fn labels_are_smoothed(on: &TestDevice) {
        for [outer, axis, inner] in [[4, 10, 1], [3, 7, 13]] {
            let e = AxisExtents { outer, axis, inner };
            let (x, labels) = (random(e.len(), 1), labels(&e));
            let valid = labels.iter().filter(|&&label| label != 255.0).count() as f64;
            let options = LossOptions { ignore_label: Some(255), smoothing: 0.1, ..LossOptions::default() };
            let [p, loss] = loss_of(on, &e, &options, &x, &labels);
            let expected = |x: &[f64]| {
                let (p, smoothing) = (reference(&e, x), f64::from(0.1f32));
                let hard = reference_loss(&e, valid, &labels, x);
                let place = |i: usize| i / (e.axis * e.inner) * e.inner + i % e.inner;
                let counted = (0..e.len()).filter(|&i| labels[place(i)] != 255.0);
                let uniform = -counted.map(|i| p[i].ln()).sum::<f64>() / axis as f64 / valid;
                vec![(1.0 - smoothing) * hard + smoothing * uniform]
            };
            assert_close(&loss, &expected(&wide(&x)), FEW_ROUNDINGS, "loss");
            let dx = on.run_accumulating([&p, &labels], e.len(), |device, [p, labels], dx| {
                loss_backward(device, &e, &options, 0.3, p, labels, dx);
            });
            assert_close(&dx, &numeric_gradient(&x, &[0.3], expected), 1e-5, "dx");
        }
    }

    fn many_predictions_have_one_loss_and_one_normaliser(on: &TestDevice) {
        let e = AxisExtents { outer: 7, axis: 4, inner: 1501 };
        let (x, labels) = (random(e.len(), 1), labels(&e));
        let valid = labels.iter().filter(|&&label| label != 255.0).count() as f64;
        let options = LossOptions { ignore_label: Some(255), ..LossOptions::default() };
        let [p, loss] = loss_of(on, &e, &options, &x, &labels);
        assert_close(&loss, &[reference_loss(&e, valid, &labels, &wide(&x))], FEW_ROUNDINGS, "loss");
        let dx = on.run_accumulating([&p, &labels], e.len(), |device, [p, labels], dx| {
            loss_backward(device, &e, &options, 2.0, p, labels, dx);
        });
        let expected: Vec<f64> = (0..e.len())
            .map(|i| {
                let (class, label) = (i / e.inner % e.axis, labels[i / (e.axis * e.inner) * e.inner + i % e.inner]);
                let wanted = if label == class as f32 { 1.0 } else { 0.0 };
                if label == 255.0 { 0.0 } else { (f64::from(p[i]) - wanted) * 2.0 / valid }
            })
            .collect();
        assert_close(&dx, &expected, FEW_ROUNDINGS, "dx");
    }

    fn an_impossible_class_costs_a_finite_loss(on: &TestDevice) {
        let e = AxisExtents { outer: 1, axis: 2, inner: 1 };
        let [_, loss] = loss_of(on, &e, &LossOptions::default(), &[0.0, -1000.0], &[1.0]);
        assert!((loss[0] + f32::MIN_POSITIVE.ln()).abs() < 1e-4, "{}", loss[0]);
    }

    fn fractions_of_labels_are_cut_off(on: &TestDevice) {
        let e = AxisExtents { outer: 5, axis: 3, inner: 1 };
        let (x, options) = (random(e.len(), 1), LossOptions { ignore_label: Some(-1), ..LossOptions::default() });
        let of = |labels: &[f32]| {
            let [saved, loss] = loss_of(on, &e, &options, &x, labels);
            let dx = on.run_accumulating([&saved, labels], e.len(), |device, [saved, labels], dx| {
                loss_backward(device, &e, &options, 1.0, saved, labels, dx);
            });
            let share = on.run([&x, labels], 1, |device, [x, labels], share| {
                accuracy(device, &e, 1, Some(-1), x, labels, share, None).expect("labels are classes");
            });
            (saved, loss, dx, share)
        };
        assert_eq!(of(&[0.01, -0.9, 2.9, 1.5, -1.7]), of(&[0.0, 0.0, 2.0, 1.0, -1.0]));
    }

    fn labels_that_name_no_class_are_errors(on: &TestDevice) {
        let _turn = FAULTS.write().unwrap_or_else(PoisonError::into_inner);
        let options = LossOptions { ignore_label: Some(-1), ..LossOptions::default() };
        // Fewer predictions than a GPU's block has threads, and more; the first bad label is reported.
        for ([outer, inner], bad_at) in [([3, 2], [5, 5]), ([9000, 1], [4100, 8000])] {
            let e = AxisExtents { outer, axis: 10, inner };
            let x = random(e.len(), 1);
            for bad in [10.0, -2.0, f32::NAN, f32::INFINITY, 1e20] {
                let mut labels = vec![-1.0; e.per_index()];
                bad_at.iter().for_each(|&at| labels[at] = bad);
                let check = |error: LabelError| {
                    let sample = bad_at[0] / inner;
                    assert_eq!((error.sample, error.classes), (sample, 10));
                    let message = format!("the label {bad} of sample {sample} is none of the classes 0 to 9");
                    assert_eq!(error.to_string(), message);
                };
                let loss = on.run_in_place([&x, &labels], &vec![7.0; e.len() + 2], |device, [x, labels], mut out| {
                    let saved = out.take(Format::F32, e.len() + 1);
                    check(error_of(device, super::loss(device, &e, &options, x, labels, saved, out)));
                });
                assert_eq!(loss[e.len() + 1], 7.0, "the loss is not written");
                let share = on.run_in_place([&x, &labels], &[7.0], |device, [x, labels], share| {
                    check(error_of(device, accuracy(device, &e, 1, Some(-1), x, labels, share, None)));
                });
                assert_eq!(share, [7.0], "the accuracy is not written");
            }
        }
    }

    fn accuracy_counts_the_label_among_the_best(on: &TestDevice) {
        let e = AxisExtents { outer: 2, axis: 3, inner: 2 };
        // Predictions by column: scores (3, 2, 1), (1, 1, 1), (0, NaN, 5), (1, 2, 3).
        let scores = [3.0, 1.0, 2.0, 1.0, 1.0, 1.0, 0.0, 1.0, f32::NAN, 2.0, 5.0, 3.0];
        let share = |top_k: usize, labels: [f32; 4]| {
            on.run([&scores, &labels], 1, |device, [scores, labels], out| {
                accuracy(device, &e, top_k, Some(9), scores, labels, out, None).expect("labels are classes");
            })[0]
        };
        // Of equal scores the higher class is first, so class 1 of the second prediction is the second best.
        let labels = [0.0, 1.0, 1.0, 9.0];
        assert_eq!([1, 2, 3].map(|top_k| share(top_k, labels)), [1.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0]);
        assert_eq!(share(1, [9.0; 4]), 0.0);
    }

    fn every_class_has_an_accuracy_of_its_own(on: &TestDevice) {
        let e = AxisExtents { outer: 90, axis: 40, inner: 3 };
        let (scores, labels) = (random(e.len(), 1), labels(&e));
        let (mut right, mut counted) = (vec![0.0; 40], vec![0.0f32; 40]);
        for (row, &label) in labels.iter().enumerate().filter(|(_, label)| **label != 255.0) {
            let score = |class: usize| scores[(row / e.inner * e.axis + class) * e.inner + row % e.inner];
            let better = (0..e.axis).filter(|&class| score(class) > score(label as usize)).count();
            right[label as usize] += if better < 5 { 1.0 } else { 0.0 };
            counted[label as usize] += 1.0;
        }
        let expected: Vec<f32> = right.iter().zip(&counted).map(|(right, counted)| right / counted.max(1.0)).collect();
        let shares = on.run([&scores, &labels], 41, |device, [scores, labels], mut out| {
            let all = out.take(Format::F32, 1);
            accuracy(device, &e, 5, Some(255), scores, labels, all, Some(out)).expect("labels are classes");
        });
        assert_eq!(shares[1..], expected);
        assert!(expected.iter().any(|&share| share > 0.0));
    }

    fn accuracy_of_many_predictions(on: &TestDevice) {
        let e = AxisExtents { outer: 150, axis: 67, inner: 3 };
        // Ties between some classes.
        let scores: Vec<f32> = random(e.len(), 1).iter().map(|x| (x * 50.0).round()).collect();
        let labels = labels(&e);
        let (mut right, mut counted) = (0.0, 0.0);
        for (row, &label) in labels.iter().enumerate().filter(|(_, label)| **label != 255.0) {
            let score = |class: usize| scores[(row / e.inner * e.axis + class) * e.inner + row % e.inner];
            let mut classes: Vec<usize> = (0..e.axis).rev().collect();
            classes.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
            right += if classes[..5].contains(&(label as usize)) { 1.0 } else { 0.0 };
            counted += 1.0;
        }
        let share = on.run([&scores, &labels], 1, |device, [scores, labels], out| {
            accuracy(device, &e, 5, Some(255), scores, labels, out, None).expect("labels are classes");
        });
        assert!(right > 0.0 && right < counted);
        assert_eq!(share, [right / counted]);
    }
}
