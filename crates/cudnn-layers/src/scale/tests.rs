//! Against plain loops; the map is linear, so its gradients are sums of products.

use super::*;
use crate::testing::{FEW_ROUNDINGS, run, run_accumulating};
use tensor::testing::{assert_close, random};

const EXTENTS: [[usize; 3]; 5] = [[1, 1, 1], [3, 5, 7], [4, 130, 1], [2, 3, 20_011], [16, 65, 49]];

#[test]
fn forward_and_backward_are_the_definition() {
    for [outer, axis, inner] in EXTENTS {
        let extents = AxisExtents { outer, axis, inner };
        let (x, dy) = (random(extents.len(), 1), random(extents.len(), 2));
        let (gamma, beta) = (random(axis, 3), random(axis, 4));
        let affine = Affine { gamma: (&gamma).into(), beta: Some((&beta).into()) };
        let y = run(x.len(), |device, y| forward(device, &extents, affine, (&x).into(), y));
        let in_place = run(x.len(), |device, mut xy| {
            xy.host().copy_from_slice(&x);
            forward_in_place(device, &extents, affine, xy);
        });
        assert_eq!(in_place, y);
        let dx = run_accumulating(x.len(), |device, dx, accumulate| {
            backward(device, &extents, (&gamma).into(), (&dy).into(), dx, accumulate);
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
        check_parameter_gradients(&extents, &x, &dy, &sums);
    }
}

fn check_parameter_gradients(extents: &AxisExtents, x: &[f32], dy: &[f32], sums: &[f64]) {
    let axis = extents.axis;
    let both = run_accumulating(2 * axis, |device, mut out, accumulate| {
        let (dgamma, dbeta) = out.host().split_at_mut(axis);
        let gradients =
            AffineGradients { dgamma: dgamma.into(), dbeta: Some((&mut *dbeta).into()), accumulate };
        backward_affine(device, extents, x.into(), dy.into(), gradients);
    });
    assert_close(&both, sums, FEW_ROUNDINGS, "dgamma and dbeta");
    let alone = run_accumulating(axis, |device, dgamma, accumulate| {
        let gradients = AffineGradients { dgamma, dbeta: None, accumulate };
        backward_affine(device, extents, x.into(), dy.into(), gradients);
    });
    assert_eq!(alone, both[..axis]);
}
