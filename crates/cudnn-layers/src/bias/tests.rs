//! Against plain loops.

use super::*;
use crate::testing::{FEW_ROUNDINGS, run, run_accumulating};
use tensor::testing::{assert_close, random};

const EXTENTS: [[usize; 3]; 6] =
    [[1, 1, 1], [3, 5, 7], [4, 130, 1], [33, 1000, 1], [2, 3, 20_011], [16, 65, 49]];

#[test]
fn every_channel_gets_its_bias_and_collects_its_gradient() {
    for [outer, axis, inner] in EXTENTS {
        let extents = AxisExtents { outer, axis, inner };
        let (x, b) = (random(extents.len(), 1), random(axis, 2));
        let y = run(x.len(), |device, mut y| {
            y.host().copy_from_slice(&x);
            forward_in_place(device, &extents, (&b).into(), y);
        });
        let db = run_accumulating(axis, |device, db, accumulate| {
            backward(device, &extents, (&x).into(), db, accumulate);
        });
        let mut sums = vec![0.0; axis];
        for (i, (&x, &y)) in x.iter().zip(&y).enumerate() {
            let channel = i / inner % axis;
            assert_eq!(y, x + b[channel]);
            sums[channel] += f64::from(x);
        }
        assert_close(&db, &sums, FEW_ROUNDINGS, "db");
    }
}
