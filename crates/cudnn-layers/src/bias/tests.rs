//! Against plain loops.

use super::*;
use crate::testing::{FEW_ROUNDINGS, assert_same_bits, on_every_device, rectified};
use tensor::testing::{assert_close, random};
use tensor::{Accumulate, Format};

/// Planes of one element, odd ones, some that four-element packs fill, and channels that are worth many blocks.
const EXTENTS: [[usize; 3]; 11] = [
    [1, 1, 1],
    [3, 5, 7],
    [4, 130, 1],
    [33, 1000, 1],
    [700, 37, 1],
    [2, 3, 20_011],
    [16, 65, 49],
    [9, 6, 2],
    [5, 70, 64],
    [67, 3, 1024],
    [40, 2, 3025],
];

on_every_device! {
    fn every_channel_gets_its_bias_and_collects_its_gradient(on: &TestDevice) {
        for [outer, axis, inner] in EXTENTS {
            let extents = AxisExtents { outer, axis, inner };
            let (x, b) = (random(extents.len(), 1), random(axis, 2));
            let y = on.run_in_place([&b], &x, |device, [b], y| forward_in_place(device, &extents, b, false, y));
            let db = on.run_accumulating([&x], axis, |device, [dy], db| {
                backward(device, &extents, None, dy, db);
            });
            let mut sums = vec![0.0; axis];
            for (i, (&x, &y)) in x.iter().zip(&y).enumerate() {
                let channel = i / inner % axis;
                assert_eq!(y, x + b[channel], "{extents:?}");
                sums[channel] += f64::from(x);
            }
            assert_close(&db, &sums, FEW_ROUNDINGS, "db");
        }
    }

    fn a_fused_relu_is_the_relu_that_follows(on: &TestDevice) {
        for [outer, axis, inner] in EXTENTS {
            let extents = AxisExtents { outer, axis, inner };
            let (mut x, mut b) = (random(extents.len(), 1), random(axis, 2));
            // -0 + -0 is -0, and a NaN passes.
            (x[0], b[0]) = (-0.0, -0.0);
            *x.last_mut().unwrap() = if x.len() > 1 { f32::NAN } else { -0.0 };
            let with = |relu: bool| {
                on.run_in_place([&b], &x, |device, [b], y| forward_in_place(device, &extents, b, relu, y))
            };
            assert_same_bits(&with(true), &rectified(&with(false)));
        }
    }

    fn through_a_relu_comes_what_it_lets_pass(on: &TestDevice) {
        for [outer, axis, inner] in EXTENTS {
            let extents = AxisExtents { outer, axis, inner };
            let (mut y, dy) = (random(extents.len(), 1), random(extents.len(), 2));
            // What is not above 0 stops gradients, whatever it is.
            (0..y.len()).step_by(11).for_each(|i| y[i] = [0.0, -0.0, f32::NAN][i % 3]);
            let passed: Vec<f32> =
                y.iter().zip(&dy).map(|(&y, &dy)| if y > 0.0 { dy } else { 0.0 }).collect();
            let mut sums = vec![0.0; axis];
            passed.iter().enumerate().for_each(|(i, &dy)| sums[i / inner % axis] += f64::from(dy));
            let db = on.run_accumulating([&y, &dy], axis, |device, [y, dy], db| {
                backward(device, &extents, Some(y), dy, db);
            });
            assert_close(&db, &sums, FEW_ROUNDINGS, &format!("db of {extents:?}"));
            // The gradient in place lies before the bias's.
            for accumulate in [Accumulate::Replace, Accumulate::Add] {
                let start: Vec<f32> = dy.iter().copied().chain(random(axis, 3)).collect();
                let both = on.run_in_place([&y], &start, |device, [y], mut both| {
                    let dy = both.take(Format::F32, y.len());
                    backward_in_place(device, &extents, y, dy, Out { to: both, accumulate });
                });
                assert_same_bits(&both[..dy.len()], &passed);
                let was = |i: usize| if accumulate == Accumulate::Add { start[dy.len() + i].into() } else { 0.0 };
                let expected: Vec<f64> = sums.iter().enumerate().map(|(i, sum)| was(i) + sum).collect();
                assert_close(&both[dy.len()..], &expected, FEW_ROUNDINGS, &format!("db in place of {extents:?}"));
            }
        }
    }

    fn a_blob_of_no_samples_has_no_gradient(on: &TestDevice) {
        let extents = AxisExtents { outer: 0, axis: 3, inner: 4 };
        let db = on.run_accumulating([&[]], 3, |device, [dy], db| {
            backward(device, &extents, None, dy, db);
        });
        assert_eq!(db, [0.0; 3]);
    }
}
