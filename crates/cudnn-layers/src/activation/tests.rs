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
            let y = on.run([&x], len, |device, [x], y| forward(device, slope, Some(x), y));
            assert_close(&y, &reference(slope, &wide(&x)), FEW_ROUNDINGS, "forward");
            let in_place = on.run_in_place([], &x, |device, [], xy| forward(device, slope, None, xy));
            assert_eq!(in_place, y);
        }
    }

    fn backward_is_the_slope_of_forward(on: &TestDevice) {
        for slope in [0.0, 0.25] {
            let (x, dy) = (random(333, 1), random(333, 2));
            let y: Vec<f32> = reference(slope, &wide(&x)).iter().map(|&y| y as f32).collect();
            let dx = on.run_accumulating([&y, &dy], 333, |device, [y, dy], dx, accumulate| {
                backward(device, slope, y, Some(dy), dx, accumulate);
            });
            assert_close(&dx, &numeric_gradient(&x, &dy, |x| reference(slope, x)), 1e-6, "dx");
            let in_place = on.run_in_place([&y], &dy, |device, [y], dxy| {
                backward(device, slope, y, None, dxy, Accumulate::Replace);
            });
            assert_eq!(in_place, dx);
        }
    }

    fn backward_is_right_beyond_one_block(on: &TestDevice) {
        let len = 300_007;
        let (y, dy) = (random(len, 1), random(len, 2));
        let dx = on.run_accumulating([&y, &dy], len, |device, [y, dy], dx, accumulate| {
            backward(device, 0.5, y, Some(dy), dx, accumulate);
        });
        for ((&dx, &y), &dy) in dx.iter().zip(&y).zip(&dy) {
            assert_eq!(dx, if y > 0.0 { dy } else { 0.5 * dy });
        }
    }

    fn nan_passes_and_infinities_are_cut(on: &TestDevice) {
        let x = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY];
        let y = on.run([&x], 3, |device, [x], y| forward(device, 0.0, Some(x), y));
        assert!(y[0].is_nan());
        assert_eq!(y[1..], [0.0, f32::INFINITY]);
        let (y, dy) = ([0.0, 1.0], [f32::INFINITY; 2]);
        let dx = on.run([&y, &dy], 2, |device, [y, dy], dx| {
            backward(device, 0.0, y, Some(dy), dx, Accumulate::Replace);
        });
        assert_eq!(dx, [0.0, f32::INFINITY]);
    }
}

#[test]
#[should_panic(expected = "slope that is not negative")]
fn a_negative_slope_is_refused() {
    forward(&Device::cpu(), -0.5, None, ViewMut::from(&mut vec![0.0]));
}
