//! Sums over all elements of a convolution's output, each times a number of its own: cheap to know exactly, and an
//! error anywhere in the output moves them (Freivalds, "Probabilistic machines can use less running time", 1977).
//!
//! The numbers are products of one for each index of the element: v = f0\[i\] f1\[j\] f2\[p\] f3\[q\]. Then the sum
//! over the samples (or the channels) can be taken before the convolution, and what is left is a convolution of one
//! sample and one filter for each channel. Let e be the error of each element. The sum is off by Σ v e, and as the
//! numbers are drawn independently of each other around 0, the mean of (Σ v e)² over the draws is Σ e² times the mean
//! of v²: from a few draws follows the L2 norm of the error.

use super::operand::runs;
use crate::conv::{ConvOp, operands::operand_extents};
use tensor::{ConvGeometry, rng::random};

/// How many sums there are. The estimate is off by about a third; a fault is off by orders of magnitude.
const DRAWS: u64 = 4;

/// The numbers of one sum.
pub(super) struct Draw {
    /// For each index of the output: `n, k, p, q` or `n, c, h, w` or `k, c / groups, r, s`.
    factors: [Vec<f64>; 4],
}

impl Draw {
    /// Several, for the output of `op`.
    pub(super) fn some(op: ConvOp, g: &ConvGeometry) -> Vec<Self> {
        let [_, _, extents] = operand_extents(op, g);
        let draw = |number: u64| {
            let mut seed = 100 + 4 * number;
            let factors = extents.map(|extent| {
                seed += 1;
                // Of either sign, but none so small that it hides an element.
                let away = |value: f32| f64::from(value.abs() + 1.0).copysign(f64::from(value));
                random(extent, seed).into_iter().map(away).collect()
            });
            Self { factors }
        };
        (0..DRAWS).map(draw).collect()
    }

    /// The sum over the exact output of `op` on operands of these patterns.
    pub(super) fn exact(&self, op: ConvOp, g: &ConvGeometry, [a, b]: &[Vec<f32>; 2]) -> f64 {
        let [f0, f1, f2, f3] = &self.factors;
        let (c_group, k_group) = (g.c / g.groups, g.k / g.groups);
        let plane: Vec<f64> = f2.iter().flat_map(|f2| f3.iter().map(move |f3| f2 * f3)).collect();
        match op {
            ConvOp::Forward => {
                let x = combined(a, 0, [g.n, g.x_sample()], 1, |n| (0, f0[n]));
                let w = combined(b, 0, [g.k, g.taps()], g.groups, |k| (k / k_group, f1[k]));
                products(g, g.c, [&x, &w, &plane])
            }
            ConvOp::BackwardData => {
                let y = combined(a, 0, [g.n, g.y_sample()], 1, |n| (0, f0[n]));
                let w = combined(b, 0, [g.k * c_group, g.r * g.s], g.k, |slice| {
                    let (k, c) = (slice / c_group, slice % c_group);
                    (k, f1[k / k_group * c_group + c])
                });
                products(g, g.k, [&plane, &w, &y])
            }
            ConvOp::BackwardFilter => {
                let sample = |n: usize| {
                    let x = combined(a, n * g.x_sample(), [g.c, g.h * g.w], g.groups, |c| {
                        (c / c_group, f1[c % c_group])
                    });
                    let y = combined(b, n * g.y_sample(), [g.k, g.out_pixels()], g.groups, |k| {
                        (k / k_group, f0[k])
                    });
                    products(g, g.groups, [&x, &plane, &y])
                };
                (0..g.n).map(sample).sum()
            }
        }
    }

    /// The sum over the output that was `found`.
    fn found(&self, found: &[f32]) -> f64 {
        let [f0, f1, f2, f3] = &self.factors;
        let row = |(row, values): (usize, &[f32])| {
            let (outer, f2) = (row / f2.len(), f2[row % f2.len()]);
            let factor = f0[outer / f1.len()] * f1[outer % f1.len()] * f2;
            factor * values.iter().zip(f3).map(|(&value, f3)| f64::from(value) * f3).sum::<f64>()
        };
        found.chunks_exact(f3.len()).enumerate().map(row).sum()
    }

    /// The mean of v².
    fn mean_square(&self) -> f64 {
        let mean = |factor: &Vec<f64>| factor.iter().map(|f| f * f).sum::<f64>() / factor.len() as f64;
        self.factors.iter().map(mean).product()
    }
}

/// The relative L2 distance between the output that was `found` and `times` the one whose sums are `exact`, as far as
/// `draws` show it; NaN if the output has one.
pub(super) fn distance(found: &[f32], draws: &[Draw], exact: &[f64], times: f64) -> f64 {
    let norm: f64 = found.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    let error = |(draw, exact): (&Draw, &f64)| {
        let error = draw.found(found) - times * exact;
        error * error / draw.mean_square()
    };
    let error = draws.iter().zip(exact).map(error).sum::<f64>() / draws.len() as f64;
    if error == 0.0 { 0.0 } else { (error / norm).sqrt() }
}

/// Blocks of values, `[their number, their length]` of them from number `start` of an operand on, added up to `sums`
/// blocks: `to` says for each to which one, and times what.
fn combined(
    pattern: &[f32],
    start: usize,
    [blocks, len]: [usize; 2],
    sums: usize,
    to: impl Fn(usize) -> (usize, f64),
) -> Vec<f64> {
    let mut all = vec![0.0; sums * len];
    for block in 0..blocks {
        let (sum, factor) = to(block);
        let mut totals = &mut all[sum * len..][..len];
        for run in runs(pattern, start + block * len, len) {
            let (these, rest) = totals.split_at_mut(run.len());
            these.iter_mut().zip(run).for_each(|(total, &value)| *total += factor * f64::from(value));
            totals = rest;
        }
    }
    all
}

/// The sum of all products x · w · y of `count` convolutions of one channel and one filter each. Where there is one
/// plane of an operand, it is that of all of them.
fn products(g: &ConvGeometry, count: usize, [x, w, y]: [&[f64]; 3]) -> f64 {
    let out_w = g.out_w();
    let mut sum = 0.0;
    for index in 0..count {
        let x = plane(x, index, g.h * g.w);
        let w = plane(w, index, g.r * g.s);
        let y = plane(y, index, g.out_pixels());
        for ((p, y), r) in y.chunks_exact(out_w).enumerate().flat_map(|row| (0..g.r).map(move |r| (row, r))) {
            let row = (p * g.stride[0] + r * g.dilation[0]).wrapping_sub(g.pad[0]);
            if row >= g.h {
                continue;
            }
            let x = &x[row * g.w..][..g.w];
            for (s, w) in w[r * g.s..][..g.s].iter().enumerate() {
                let product = |(q, y): (usize, &f64)| {
                    let col = (q * g.stride[1] + s * g.dilation[1]).wrapping_sub(g.pad[1]);
                    x.get(col).map_or(0.0, |x| x * y)
                };
                sum += w * y.iter().enumerate().map(product).sum::<f64>();
            }
        }
    }
    sum
}

/// Plane number `index` of `values`, or the only one.
fn plane(values: &[f64], index: usize, len: usize) -> &[f64] {
    if values.len() == len { values } else { &values[index * len..][..len] }
}
