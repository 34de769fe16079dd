//! One to five inputs against plain loops, with ties and zeros, and by finite differences.

use super::*;
use crate::testing::{FEW_ROUNDINGS, assert_same_bits, numeric_gradient, on_every_device, rectified, wide};
use tensor::testing::{assert_close, random};

/// `count` inputs with frequent zeros and ties.
fn inputs(count: u64, len: usize) -> Vec<Vec<f32>> {
    (0..count).map(|seed| random(len, seed).iter().map(|x| (x * 3.0).round() / 3.0).collect()).collect()
}

fn slices(inputs: &[Vec<f32>]) -> Vec<&[f32]> {
    inputs.iter().map(Vec::as_slice).collect()
}

/// The output's contents before an operation that overwrites it.
fn unset(len: usize) -> Vec<f32> {
    vec![f32::NAN; len]
}

on_every_device! {
    fn forward_is_the_definition(on: &TestDevice) {
        for (count, len) in [(1, 5), (2, 100_003), (2, 4096), (3, 1000), (4, 40_000), (5, 300_001)] {
            let (inputs, coefficients) = (inputs(count, len), random(count as usize, 9));
            let fold = |start: f64, op: &dyn Fn(f64, usize, f64) -> f64| -> Vec<f64> {
                let at = |i: usize| inputs.iter().enumerate().map(move |(j, x)| (j, f64::from(x[i])));
                (0..len).map(|i| at(i).fold(start, |total, (j, x)| op(total, j, x))).collect()
            };
            let (slices, start) = (slices(&inputs), unset(len));
            let y = on.run_on_slices(&slices, &start, |device, x, y| {
                forward(device, &Combination::Sum(coefficients.clone()), x, false, y);
            });
            let expected = fold(0.0, &|total, j, x| total + f64::from(coefficients[j]) * x);
            assert_close(&y, &expected, FEW_ROUNDINGS, "sum");
            let y = on.run_on_slices(&slices, &start, |device, x, y| forward(device, &Combination::Product, x, false, y));
            assert_close(&y, &fold(1.0, &|total, _, x| total * x), FEW_ROUNDINGS, "product");
            let y = on.run_on_slices(&slices, &start, |device, x, y| forward(device, &Combination::Maximum, x, false, y));
            assert_close(&y, &fold(f64::NEG_INFINITY, &|total, _, x| total.max(x)), 0.0, "maximum");
        }
    }

    fn a_relu_fused_with_the_sum_is_the_relu_that_follows(on: &TestDevice) {
        for (count, len) in [(1, 5), (2, 100_003), (2, 4096), (3, 1000), (5, 300_001)] {
            let (mut inputs, coefficients) = (inputs(count, len), vec![1.0; count as usize]);
            inputs.iter_mut().for_each(|x| x[1] = -0.0);
            inputs[0][2] = f32::NAN;
            let with = |relu: bool| {
                on.run_on_slices(&slices(&inputs), &unset(len), |device, x, y| {
                    forward(device, &Combination::Sum(coefficients.clone()), x, relu, y);
                })
            };
            assert_same_bits(&with(true), &rectified(&with(false)));
        }
    }

    fn gradients_of_sum_and_product_agree_with_finite_differences(on: &TestDevice) {
        let (count, len) = (3, 60);
        let (inputs, dy) = (inputs(count, len), random(len, 5));
        let mut operands = slices(&inputs);
        operands.push(&dy);
        for index in 0..count as usize {
            let dx = on.run_accumulating_on_slices(&operands, len, |device, operands, dx| {
                let (&dy, inputs) = operands.split_last().unwrap();
                backward(device, &Combination::Product, inputs, index, dy, dx);
            });
            let product = |x: &[f64]| -> Vec<f64> {
                let others = inputs.iter().enumerate().filter(|(other, _)| *other != index);
                others.fold(x.to_vec(), |y, (_, x)| y.iter().zip(x).map(|(y, &x)| y * f64::from(x)).collect())
            };
            assert_close(&dx, &numeric_gradient(&inputs[index], &dy, product), 1e-6, "product");
        }
        let dx = on.run_accumulating([&dy], len, |device, [dy], dx| {
            backward(device, &Combination::Sum(vec![1.0, -2.5]), &[], 1, dy, dx);
        });
        let expected: Vec<f64> = wide(&dy).iter().map(|dy| -2.5 * dy).collect();
        assert_close(&dx, &expected, FEW_ROUNDINGS, "sum");
    }

    fn exactly_one_input_wins_a_maximum_and_ties_follow_caffe(on: &TestDevice) {
        let operands: [&[f32]; 4] =
            [&[1.0, 2.0, 1.0, 3.0], &[1.0, 1.0, 0.0, 3.0], &[1.0, 0.0, 1.0, 4.0], &[1.0; 4]];
        let won = |index: usize| {
            on.run_accumulating(operands, 4, |device, [a, b, c, dy], dx| {
                backward(device, &Combination::Maximum, &[a, b, c], index, dy, dx);
            })
        };
        assert_eq!(won(0), [0.0, 1.0, 1.0, 0.0]);
        assert_eq!(won(1), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(won(2), [0.0, 0.0, 0.0, 1.0]);
    }

    /// Every element's gradient goes to one input, that which has the maximum.
    fn gradients_of_a_maximum_are_shared_out_completely(on: &TestDevice) {
        let len = 50_001;
        let (inputs, dy) = (inputs(3, len), random(len, 5));
        let shares: Vec<Vec<f32>> = (0..3)
            .map(|index| {
                let operands = [&inputs[0][..], &inputs[1], &inputs[2], &dy];
                on.run(operands, len, |device, [a, b, c, dy], dx| {
                    backward(device, &Combination::Maximum, &[a, b, c], index, dy, dx.replaced());
                })
            })
            .collect();
        for i in 0..len {
            let largest = inputs.iter().map(|x| x[i]).fold(f32::NEG_INFINITY, f32::max);
            let winners: Vec<usize> = (0..3).filter(|&index| shares[index][i] != 0.0).collect();
            assert_eq!(winners.len(), 1, "element {i}");
            assert_eq!((inputs[winners[0]][i], shares[winners[0]][i]), (largest, dy[i]), "element {i}");
        }
    }
}
