//! Against the definition, at the ends of the number line, and by finite differences.

use super::*;
use crate::testing::{FEW_ROUNDINGS, numeric_gradient, run, run_accumulating, wide};
use tensor::testing::{assert_close, random};

fn reference(slope: f32, x: &[f64]) -> Vec<f64> {
    x.iter().map(|&x| if x < 0.0 { f64::from(slope) * x } else { x }).collect()
}

#[test]
fn forward_is_the_definition_in_and_out_of_place() {
    for (len, slope) in [(0, 0.0), (1, 0.1), (17, 0.0), (100_003, 0.0), (100_003, 0.25)] {
        let x = random(len, 1);
        let y = run(len, |device, y| forward(device, slope, (&x).into(), y));
        assert_close(&y, &reference(slope, &wide(&x)), FEW_ROUNDINGS, "forward");
        let in_place = run(len, |device, mut xy| {
            xy.host().copy_from_slice(&x);
            forward_in_place(device, slope, xy);
        });
        assert_eq!(in_place, y);
    }
}

#[test]
fn backward_is_the_slope_of_forward() {
    for slope in [0.0, 0.25] {
        let (x, dy) = (random(333, 1), random(333, 2));
        let y: Vec<f32> = reference(slope, &wide(&x)).iter().map(|&y| y as f32).collect();
        let dx = run_accumulating(333, |device, dx, accumulate| {
            backward(device, slope, (&y).into(), (&dy).into(), dx, accumulate);
        });
        assert_close(&dx, &numeric_gradient(&x, &dy, |x| reference(slope, x)), 1e-6, "dx");
        let in_place = run(333, |device, mut dxy| {
            dxy.host().copy_from_slice(&dy);
            backward_in_place(device, slope, (&y).into(), dxy);
        });
        assert_eq!(in_place, dx);
    }
}

#[test]
fn nan_passes_and_infinities_are_cut() {
    let x = vec![f32::NAN, f32::NEG_INFINITY, f32::INFINITY];
    let y = run(3, |device, y| forward(device, 0.0, (&x).into(), y));
    assert!(y[0].is_nan());
    assert_eq!(y[1..], [0.0, f32::INFINITY]);
    let (y, dy) = (vec![0.0, 1.0], vec![f32::INFINITY; 2]);
    let dx = run(2, |device, dx| {
        backward(device, 0.0, (&y).into(), (&dy).into(), dx, Accumulate::Replace);
    });
    assert_eq!(dx, [0.0, f32::INFINITY]);
}

#[test]
#[should_panic(expected = "slope that is not negative")]
fn a_negative_slope_is_refused() {
    forward_in_place(&Device::cpu(), -0.5, ViewMut::from(&mut vec![0.0]));
}
