//! One to four inputs against plain loops, with ties and zeros, and by finite differences.

use super::*;
use crate::testing::{FEW_ROUNDINGS, numeric_gradient, run, run_accumulating, wide};
use tensor::testing::{assert_close, random};

/// `count` inputs with frequent zeros and ties.
fn inputs(count: u64, len: usize) -> Vec<Vec<f32>> {
    (0..count).map(|seed| random(len, seed).iter().map(|x| (x * 3.0).round() / 3.0).collect()).collect()
}

fn views(inputs: &[Vec<f32>]) -> Vec<View<'_>> {
    inputs.iter().map(View::from).collect()
}

#[test]
fn forward_is_the_definition() {
    for (count, len) in [(1, 5), (2, 100_003), (3, 1000), (4, 40_000)] {
        let (inputs, coefficients) = (inputs(count, len), random(count as usize, 9));
        let fold = |start: f64, op: &dyn Fn(f64, usize, f64) -> f64| -> Vec<f64> {
            let at = |i: usize| inputs.iter().enumerate().map(move |(j, x)| (j, f64::from(x[i])));
            (0..len).map(|i| at(i).fold(start, |total, (j, x)| op(total, j, x))).collect()
        };
        let y = run(len, |device, y| sum(device, &views(&inputs), &coefficients, y));
        let expected = fold(0.0, &|total, j, x| total + f64::from(coefficients[j]) * x);
        assert_close(&y, &expected, FEW_ROUNDINGS, "sum");
        let y = run(len, |device, y| product(device, &views(&inputs), y));
        assert_close(&y, &fold(1.0, &|total, _, x| total * x), FEW_ROUNDINGS, "product");
        let y = run(len, |device, y| maximum(device, &views(&inputs), y));
        assert_close(&y, &fold(f64::NEG_INFINITY, &|total, _, x| total.max(x)), 0.0, "maximum");
    }
}

#[test]
fn gradients_of_sum_and_product_agree_with_finite_differences() {
    let (count, len) = (3, 60);
    let (inputs, dy) = (inputs(count, len), random(len, 5));
    for index in 0..count as usize {
        let dx = run_accumulating(len, |device, dx, accumulate| {
            backward_product(device, &views(&inputs), index, (&dy).into(), dx, accumulate);
        });
        let forward = |x: &[f64]| -> Vec<f64> {
            let others = inputs.iter().enumerate().filter(|(other, _)| *other != index);
            others.fold(x.to_vec(), |y, (_, x)| y.iter().zip(x).map(|(y, &x)| y * f64::from(x)).collect())
        };
        assert_close(&dx, &numeric_gradient(&inputs[index], &dy, forward), 1e-6, "product");
    }
    let dx = run_accumulating(len, |device, dx, accumulate| {
        backward_sum(device, -2.5, (&dy).into(), dx, accumulate);
    });
    let expected: Vec<f64> = wide(&dy).iter().map(|dy| -2.5 * dy).collect();
    assert_close(&dx, &expected, FEW_ROUNDINGS, "sum");
}

#[test]
fn exactly_one_input_wins_a_maximum_and_ties_follow_caffe() {
    let a = vec![1.0, 2.0, 1.0, 3.0];
    let b = vec![1.0, 1.0, 0.0, 3.0];
    let c = vec![1.0, 0.0, 1.0, 4.0];
    let (inputs, dy) = (vec![a, b, c], vec![1.0, 1.0, 1.0, 1.0]);
    let won = |index: usize| {
        run_accumulating(4, |device, dx, accumulate| {
            backward_maximum(device, &views(&inputs), index, (&dy).into(), dx, accumulate);
        })
    };
    assert_eq!(won(0), [0.0, 1.0, 1.0, 0.0]);
    assert_eq!(won(1), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(won(2), [0.0, 0.0, 0.0, 1.0]);
}
