//! Against plain loops.

use super::*;
use crate::testing::{FEW_ROUNDINGS, assert_same_bits, on_every_device, rectified};
use tensor::testing::{assert_close, random};

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
                backward(device, &extents, dy, db);
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

    fn a_blob_of_no_samples_has_no_gradient(on: &TestDevice) {
        let extents = AxisExtents { outer: 0, axis: 3, inner: 4 };
        let db = on.run_accumulating([&[]], 3, |device, [dy], db| {
            backward(device, &extents, dy, db);
        });
        assert_eq!(db, [0.0; 3]);
    }
}
