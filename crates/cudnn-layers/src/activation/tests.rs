//! Against the definition, at the ends of the number line, and by finite differences.

use super::*;
use crate::testing::{FEW_ROUNDINGS, numeric_gradient, on_every_device, wide};
use tensor::testing::{assert_close, random};

fn reference(slope: f32, x: &[f64]) -> Vec<f64> {
    x.iter().map(|&x| if x < 0.0 { f64::from(slope) * x } else { x }).collect()
}

on_every_device! {
    fn forward_is_the_definition_in_and_out_of_place(on: &TestDevice) {
        for (len, slope) in [(0, 0.0), (1, 0.1), (17, 0.0), (2048, 0.5), (100_003, 0.0), (1_000_003, 0.25)] {
            let x = random(len, 1);
            let y = on.run([&x], len, |device, [x], y| forward(device, Activation::Relu { slope }, Some(x), y));
            assert_close(&y, &reference(slope, &wide(&x)), FEW_ROUNDINGS, "forward");
            let in_place = on.run_in_place([], &x, |device, [], xy| forward(device, Activation::Relu { slope }, None, xy));
            assert_eq!(in_place, y);
        }
    }

    fn backward_is_the_slope_of_forward(on: &TestDevice) {
        for slope in [0.0, 0.25] {
            let (x, dy) = (random(333, 1), random(333, 2));
            let y: Vec<f32> = reference(slope, &wide(&x)).iter().map(|&y| y as f32).collect();
            let dx = on.run_accumulating([&y, &dy], 333, |device, [y, dy], dx| {
                backward(device, Activation::Relu { slope }, y, Some(dy), dx);
            });
            assert_close(&dx, &numeric_gradient(&x, &dy, |x| reference(slope, x)), 1e-6, "dx");
            let in_place = on.run_in_place([&y], &dy, |device, [y], dxy| {
                backward(device, Activation::Relu { slope }, y, None, dxy.replaced());
            });
            assert_eq!(in_place, dx);
        }
    }

    fn the_other_functions_are_their_definitions_and_slopes(on: &TestDevice) {
        type Function = fn(f64) -> f64;
        let functions: [(Activation, Function); 7] = [
            (Activation::Elu { alpha: 0.5 }, |x| if x > 0.0 { x } else { 0.5 * (x.exp() - 1.0) }),
            (Activation::Sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
            (Activation::TanH, f64::tanh),
            (Activation::Power { power: 3.0, scale: -0.5, shift: 2.0 }, |x| (2.0 - 0.5 * x).powi(3)),
            (Activation::Power { power: 0.0, scale: 1.0, shift: 0.0 }, |_| 1.0),
            (Activation::Below, |x| x.min(0.0)),
            (Activation::Relu { slope: -0.5 }, |x| if x < 0.0 { -0.5 * x } else { x }),
        ];
        for (f, reference) in functions {
            let (mut x, dy) = (random(100_003, 1), random(100_003, 2));
            x[0] = 0.0;
            let value = |x: &[f64]| x.iter().map(|&x| reference(x)).collect::<Vec<f64>>();
            let y = on.run([&x], x.len(), |device, [x], y| forward(device, f, Some(x), y));
            assert_close(&y, &value(&wide(&x)), 4.0 * FEW_ROUNDINGS, &format!("{f:?}"));
            let in_place = on.run_in_place([], &x, |device, [], xy| forward(device, f, None, xy));
            assert_eq!(in_place, y);
            let seen = if f.sees_bottom() { &x } else { &y };
            let dx = on.run_accumulating([seen, &dy], x.len(), |device, [seen, dy], dx| {
                backward(device, f, seen, Some(dy), dx);
            });
            // Kinks are at 0.
            let slope = |x: f64| (reference(x + 1e-6) - reference(x - 1e-6)) / 2e-6;
            let smooth = (1..x.len()).filter(|&i| x[i].abs() > 1e-5);
            let (found, expected): (Vec<f32>, Vec<f64>) =
                smooth.map(|i| (dx[i], f64::from(dy[i]) * slope(f64::from(x[i])))).unzip();
            assert_close(&found, &expected, 1e-5, &format!("slope of {f:?}"));
            let in_place = on.run_in_place([seen], &dy, |device, [seen], dxy| {
                backward(device, f, seen, None, dxy.replaced());
            });
            assert_eq!(in_place, dx);
        }
    }

    fn backward_is_right_beyond_one_block(on: &TestDevice) {
        let len = 300_007;
        let (y, dy) = (random(len, 1), random(len, 2));
        let dx = on.run_accumulating([&y, &dy], len, |device, [y, dy], dx| {
            backward(device, Activation::Relu { slope: 0.5 }, y, Some(dy), dx);
        });
        for ((&dx, &y), &dy) in dx.iter().zip(&y).zip(&dy) {
            assert_eq!(dx, if y > 0.0 { dy } else { 0.5 * dy });
        }
    }

    fn nan_passes_and_infinities_are_cut(on: &TestDevice) {
        let x = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY];
        let y = on.run([&x], 3, |device, [x], y| forward(device, Activation::RELU, Some(x), y));
        assert!(y[0].is_nan());
        assert_eq!(y[1..], [0.0, f32::INFINITY]);
        let (y, dy) = ([0.0, 1.0], [f32::INFINITY; 2]);
        let dx = on.run([&y, &dy], 2, |device, [y, dy], dx| {
            backward(device, Activation::RELU, y, Some(dy), dx.replaced());
        });
        assert_eq!(dx, [0.0, f32::INFINITY]);
    }
}
