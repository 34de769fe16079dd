//! Against plain loops; the map is linear, so its gradients are sums of products.

use super::*;
use crate::testing::{FEW_ROUNDINGS, TestDevice, assert_same_bits, on_every_device, rectified};
use tensor::Format;
use tensor::testing::{assert_close, random};

const EXTENTS: [[usize; 3]; 8] = [
    [1, 1, 1],
    [3, 5, 7],
    [4, 130, 1],
    [600, 40, 1],
    [2, 3, 20_011],
    [16, 65, 49],
    [5, 70, 64],
    [67, 3, 1024],
];

fn affine<'a>(gamma: View<'a>, beta: View<'a>) -> Affine<'a> {
    Affine { gamma: Some(gamma), beta: Some(beta) }
}

on_every_device! {
    fn forward_and_backward_are_the_definition(on: &TestDevice) {
        for [outer, axis, inner] in EXTENTS {
            let extents = AxisExtents { outer, axis, inner };
            let (x, dy) = (random(extents.len(), 1), random(extents.len(), 2));
            let (gamma, beta) = (random(axis, 3), random(axis, 4));
            let y = on.run([&x, &gamma, &beta], x.len(), |device, [x, gamma, beta], y| {
                forward(device, &extents, affine(gamma, beta), false, Some(x), y);
            });
            let fused = on.run([&x, &gamma, &beta], x.len(), |device, [x, gamma, beta], y| {
                forward(device, &extents, affine(gamma, beta), true, Some(x), y);
            });
            assert_same_bits(&fused, &rectified(&y));
            let in_place = on.run_in_place([&gamma, &beta], &x, |device, [gamma, beta], xy| {
                forward(device, &extents, affine(gamma, beta), false, None, xy);
            });
            assert_eq!(in_place, y);
            let dx = on.run_accumulating([&gamma, &dy], x.len(), |device, [gamma, dy], dx| {
                backward(device, &extents, gamma, dy, dx);
            });
            let (mut expected, mut sums) = (vec![], vec![0.0; 2 * axis]);
            for (i, (&x, &dy)) in x.iter().zip(&dy).enumerate() {
                let channel = i / inner % axis;
                expected.push(f64::from(x) * f64::from(gamma[channel]) + f64::from(beta[channel]));
                sums[channel] += f64::from(dy) * f64::from(x);
                sums[axis + channel] += f64::from(dy);
                assert_eq!(dx[i], gamma[channel] * dy);
            }
            assert_close(&y, &expected, FEW_ROUNDINGS, "y");
            check_parameter_gradients(on, &extents, [&x, &dy], &sums);
        }
    }

    fn without_a_bias_there_is_only_the_factor(on: &TestDevice) {
        let extents = AxisExtents { outer: 3, axis: 5, inner: 7 };
        let (x, gamma) = (random(extents.len(), 1), random(5, 3));
        let y = on.run([&x, &gamma], x.len(), |device, [x, gamma], y| {
            forward(device, &extents, Affine { gamma: Some(gamma), beta: None }, false, Some(x), y);
        });
        assert!(y.iter().enumerate().all(|(i, &y)| y == gamma[i / 7 % 5] * x[i]));
    }
}

fn check_parameter_gradients(on: &TestDevice, extents: &AxisExtents, operands: [&[f32]; 2], sums: &[f64]) {
    let axis = extents.axis;
    let both = on.run_accumulating(operands, 2 * axis, |device, [x, dy], Out { mut to, accumulate }| {
        let [gamma, beta] = [(); 2].map(|()| Some(Out { to: to.take(Format::F32, axis), accumulate }));
        backward_affine(device, extents, x, dy, AffineGradients { gamma, beta });
    });
    assert_close(&both, sums, FEW_ROUNDINGS, "dgamma and dbeta");
    let alone = |gamma: bool| {
        on.run_accumulating(operands, axis, |device, [x, dy], diff| {
            let [gamma, beta] = if gamma { [Some(diff), None] } else { [None, Some(diff)] };
            backward_affine(device, extents, x, dy, AffineGradients { gamma, beta });
        })
    };
    assert_eq!((alone(true), alone(false)), (both[..axis].to_vec(), both[axis..].to_vec()));
}
