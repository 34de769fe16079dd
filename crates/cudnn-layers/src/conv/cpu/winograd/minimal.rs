//! The one-dimensional transforms of minimal filtering, F(4, 3), on vectors of sixteen channels.
//!
//! `M` outputs of a filter of three taps are a product of polynomials modulo `x (x^2 - a^2) (x^2 - b^2)` and infinity:
//! evaluate both factors at `A = M + 2` points, multiply there, interpolate. In two dimensions every transform is
//! applied to columns, then to rows (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016).

use tensor::cpu::Lanes;

/// Outputs and points of a tile on each axis.
pub(super) const M: usize = 4;
pub(super) const A: usize = 6;

/// A linear map on vectors of `IN` numbers, each sixteen channels wide.
pub(super) trait Transform<const IN: usize, const OUT: usize> {
    fn apply<L: Lanes>(lanes: L, from: [L::V; IN]) -> [L::V; OUT];
}

/// Applies `T` to the columns and then to the rows of a square.
#[inline(always)]
pub(super) fn square<T: Transform<IN, OUT>, L: Lanes, const IN: usize, const OUT: usize>(
    lanes: L,
    from: [[L::V; IN]; IN],
) -> [[L::V; OUT]; OUT] {
    let mut tall = [[lanes.zero(); OUT]; IN];
    for (row, transformed) in from.into_iter().zip(&mut tall) {
        *transformed = T::apply(lanes, row);
    }
    let mut out = [[lanes.zero(); OUT]; OUT];
    for col in 0..OUT {
        let mut column = [lanes.zero(); IN];
        for (element, row) in column.iter_mut().zip(&tall) {
            *element = row[col];
        }
        for (row, &element) in T::apply(lanes, column).iter().enumerate() {
            out[row][col] = element;
        }
    }
    out
}

/// `B^T`: a window of the input, evaluated at the points 0, `±NEAR`, `±FAR` and infinity.
pub(super) struct Input;
/// `G`: the taps of a filter, evaluated at the points.
pub(super) struct Filter;
/// `A^T`: from products at the points to outputs.
pub(super) struct Output;
/// `A`, the adjoint of the output transform: gradients of outputs to the points.
pub(super) struct OutputAdjoint;
/// `G^T`, the adjoint of the filter transform: gradients at the points to the taps.
pub(super) struct FilterAdjoint;

/// The points of F(4, 3).
const NEAR: f64 = 0.625;
const FAR: f64 = 1.5;
const NEAR2: f64 = NEAR * NEAR;
const FAR2: f64 = FAR * FAR;
/// Residues: one over the derivative of `x (x^2 - NEAR^2) (x^2 - FAR^2)` at 0, at `±NEAR` and at `±FAR`.
const AT_ZERO: f64 = 1.0 / (NEAR2 * FAR2);
const AT_NEAR: f64 = 1.0 / (2.0 * NEAR2 * (NEAR2 - FAR2));
const AT_FAR: f64 = 1.0 / (2.0 * FAR2 * (FAR2 - NEAR2));

impl Transform<6, 6> for Input {
    #[inline(always)]
    fn apply<L: Lanes>(l: L, d: [L::V; 6]) -> [L::V; 6] {
        let (near, far) = (l.splat(NEAR as f32), l.splat(FAR as f32));
        let (near2, far2) = (l.splat(NEAR2 as f32), l.splat(FAR2 as f32));
        let (sum, product) = (l.splat((NEAR2 + FAR2) as f32), l.splat((NEAR2 * FAR2) as f32));
        let (near_even, near_odd) = (l.neg_mul_add(far2, d[2], d[4]), l.neg_mul_add(far2, d[1], d[3]));
        let (far_even, far_odd) = (l.neg_mul_add(near2, d[2], d[4]), l.neg_mul_add(near2, d[1], d[3]));
        [
            l.mul_add(product, d[0], l.neg_mul_add(sum, d[2], d[4])),
            l.mul_add(near, near_odd, near_even),
            l.neg_mul_add(near, near_odd, near_even),
            l.mul_add(far, far_odd, far_even),
            l.neg_mul_add(far, far_odd, far_even),
            l.mul_add(product, d[1], l.neg_mul_add(sum, d[3], d[5])),
        ]
    }
}

impl Transform<3, 6> for Filter {
    #[inline(always)]
    fn apply<L: Lanes>(l: L, g: [L::V; 3]) -> [L::V; 6] {
        let (near, far) = (l.splat(AT_NEAR as f32), l.splat(AT_FAR as f32));
        let (near_odd, far_odd) = (l.splat((AT_NEAR * NEAR) as f32), l.splat((AT_FAR * FAR) as f32));
        let (near_square, far_square) = (l.splat((AT_NEAR * NEAR2) as f32), l.splat((AT_FAR * FAR2) as f32));
        let near_even = l.mul_add(near, g[0], l.mul(near_square, g[2]));
        let far_even = l.mul_add(far, g[0], l.mul(far_square, g[2]));
        [
            l.mul(l.splat(AT_ZERO as f32), g[0]),
            l.mul_add(near_odd, g[1], near_even),
            l.neg_mul_add(near_odd, g[1], near_even),
            l.mul_add(far_odd, g[1], far_even),
            l.neg_mul_add(far_odd, g[1], far_even),
            g[2],
        ]
    }
}

impl Transform<6, 4> for Output {
    #[inline(always)]
    fn apply<L: Lanes>(l: L, m: [L::V; 6]) -> [L::V; 4] {
        let (near, far) = (l.splat(NEAR as f32), l.splat(FAR as f32));
        let (near2, far2) = (l.splat(NEAR2 as f32), l.splat(FAR2 as f32));
        let (near3, far3) = (l.splat((NEAR2 * NEAR) as f32), l.splat((FAR2 * FAR) as f32));
        let (near_sum, near_difference) = (l.add(m[1], m[2]), l.sub(m[1], m[2]));
        let (far_sum, far_difference) = (l.add(m[3], m[4]), l.sub(m[3], m[4]));
        [
            l.add(m[0], l.add(near_sum, far_sum)),
            l.mul_add(near, near_difference, l.mul(far, far_difference)),
            l.mul_add(near2, near_sum, l.mul(far2, far_sum)),
            l.mul_add(near3, near_difference, l.mul_add(far3, far_difference, m[5])),
        ]
    }
}

impl Transform<4, 6> for OutputAdjoint {
    #[inline(always)]
    fn apply<L: Lanes>(l: L, y: [L::V; 4]) -> [L::V; 6] {
        let (near, far) = (l.splat(NEAR as f32), l.splat(FAR as f32));
        let (near2, far2) = (l.splat(NEAR2 as f32), l.splat(FAR2 as f32));
        let (near_even, near_odd) = (l.mul_add(near2, y[2], y[0]), l.mul_add(near2, y[3], y[1]));
        let (far_even, far_odd) = (l.mul_add(far2, y[2], y[0]), l.mul_add(far2, y[3], y[1]));
        [
            y[0],
            l.mul_add(near, near_odd, near_even),
            l.neg_mul_add(near, near_odd, near_even),
            l.mul_add(far, far_odd, far_even),
            l.neg_mul_add(far, far_odd, far_even),
            y[3],
        ]
    }
}

impl Transform<6, 3> for FilterAdjoint {
    #[inline(always)]
    fn apply<L: Lanes>(l: L, m: [L::V; 6]) -> [L::V; 3] {
        let (near_sum, near_difference) = (l.add(m[1], m[2]), l.sub(m[1], m[2]));
        let (far_sum, far_difference) = (l.add(m[3], m[4]), l.sub(m[3], m[4]));
        let (near, far) = (l.splat(AT_NEAR as f32), l.splat(AT_FAR as f32));
        let (near1, far1) = (l.splat((AT_NEAR * NEAR) as f32), l.splat((AT_FAR * FAR) as f32));
        let (near2, far2) = (l.splat((AT_NEAR * NEAR2) as f32), l.splat((AT_FAR * FAR2) as f32));
        [
            l.mul_add(near, near_sum, l.mul_add(far, far_sum, l.mul(l.splat(AT_ZERO as f32), m[0]))),
            l.mul_add(near1, near_difference, l.mul(far1, far_difference)),
            l.mul_add(near2, near_sum, l.mul_add(far2, far_sum, m[5])),
        ]
    }
}
