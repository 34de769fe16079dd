//! Local response normalisation on the CPU: a block of columns at a time, walking along the rows; a sum over the
//! neighbouring rows, and then over the neighbouring columns.

use super::Neighbourhood;
use crate::AxisExtents;
use crate::cpu_loops::{for_each_column_block, inlined, items_per_task, put};
use std::ops::Range;
use tensor::{Cpu, Out, View, ViewMut};

/// Room for the terms of one neighbourhood's rows and two rows of sums: half of a first-level cache.
const ROOM: usize = 6144;
/// The widest block of columns.
const MAX_WIDTH: usize = 1024;

impl Neighbourhood {
    /// The widest block of columns, in whole vectors, and the rows of terms that are kept: all of a neighbourhood's if
    /// they fit, else one, so that terms are computed again for every row that needs them.
    fn block(&self) -> (usize, usize) {
        let (rows, margins) = (2 * self.half[0] + 1, 2 * self.half[1]);
        let width = |kept: usize| (ROOM / (kept + 2)).saturating_sub(margins).min(MAX_WIDTH) / 16 * 16;
        if width(rows) > 0 { (width(rows), rows) } else { (width(1), 1) }
    }

    /// `scale`, of the sum of the squares around an element.
    #[inline(always)]
    fn scale(&self, sum: f32) -> f32 {
        self.constant + self.factors[0] * sum
    }
}

/// Calls `body(elements, the sums of the terms around them, the output's part)` for blocks of all rows.
/// `terms(elements, to)` computes what is summed, for a range within a row.
fn for_each_sum(
    cpu: &Cpu,
    near: &Neighbourhood,
    output: &mut [f32],
    terms: impl Fn(Range<usize>, &mut [f32]) + Sync,
    body: impl Fn(Range<usize>, &[f32], &mut [f32]) + Sync,
) {
    let (extents, [half, margin]) = (&near.extents, near.half);
    let (width, kept) = near.block();
    let pitch = width + 2 * margin;
    let run = items_per_task(extents.axis * width.min(extents.inner));
    inlined!(for_each_column_block(cpu, extents, (width, run), output), |outer, columns, mut output| {
        let mut room = [0.0; ROOM];
        let (vertical, rest) = room.split_at_mut(pitch);
        let (sums, ring) = rest.split_at_mut(width);
        let sums = &mut sums[..columns.len()];
        // Position p of a row is the column columns.start + p - margin; positions outside the plane stay zero.
        let inside = columns.start.saturating_sub(margin)..(columns.end + margin).min(extents.inner);
        let at = inside.start + margin - columns.start;
        let elements = |row: usize, columns: &Range<usize>| {
            let start = extents.plane(outer, row).start;
            start + columns.start..start + columns.end
        };
        let mut ready = 0;
        for row in 0..extents.axis {
            let rows = row.saturating_sub(half)..(row + half + 1).min(extents.axis);
            vertical.fill(0.0);
            for near in rows.clone() {
                let kept_terms = &mut ring[near % kept * pitch..][..inside.len()];
                if near >= ready || kept == 1 {
                    terms(elements(near, &inside), kept_terms);
                }
                vertical[at..].iter_mut().zip(kept_terms).for_each(|(sum, term)| *sum += *term);
            }
            ready = rows.end;
            let mut around = &vertical[..columns.len()];
            if margin > 0 {
                sums.copy_from_slice(around);
                for shift in 1..=2 * margin {
                    sums.iter_mut().zip(&vertical[shift..]).for_each(|(sum, part)| *sum += part);
                }
                around = sums;
            }
            body(elements(row, &columns), around, output.row(row));
        }
    });
}

/// `scale^-0.75`, every published net's: `1 / (sqrt(s) * sqrt(sqrt(s)))`. The three operations under the fraction and
/// the division round once each; the inner root halves the relative error that enters it. In all less than 2.5 units in
/// the last place, as good as a library `powf` and vectorised.
#[inline(always)]
pub(super) fn three_quarters(scale: f32) -> f32 {
    let root = scale.sqrt();
    1.0 / (root * root.sqrt())
}

/// `by_power!(beta, |power| body)`, where `power(scale)` is `scale^-beta`: loops over elements are compiled for either,
/// as they would not be vectorised with a choice within.
macro_rules! by_power {
    ($beta:expr, |$power:ident| $body:expr) => {
        if $beta == 0.75 {
            let $power = three_quarters;
            $body
        } else {
            let $power = |scale: f32| scale.powf(-$beta);
            $body
        }
    };
}

#[inline(always)]
fn squares(x: &[f32], range: Range<usize>, to: &mut [f32]) {
    to.iter_mut().zip(&x[range]).for_each(|(to, &x)| *to = x * x);
}

/// `scale` of a range within a row: what is known, or else, across channels, computed as [`forward`] does.
#[inline(always)]
fn scale_of(near: &Neighbourhood, known: Option<&[f32]>, x: &[f32], range: Range<usize>, to: &mut [f32]) {
    if let Some(known) = known {
        return to.copy_from_slice(&known[range]);
    }
    let AxisExtents { axis, inner, .. } = near.extents;
    let row = range.start / inner % axis;
    to.fill(0.0);
    for other in row.saturating_sub(near.half[0])..(row + near.half[0] + 1).min(axis) {
        let start = range.start + other * inner - row * inner;
        to.iter_mut().zip(&x[start..]).for_each(|(sum, &x)| *sum += x * x);
    }
    to.iter_mut().for_each(|sum| *sum = near.scale(*sum));
}

pub(super) fn forward(cpu: &Cpu, near: &Neighbourhood, x: View<'_>, y: ViewMut<'_>) {
    let (x, y) = (x.host::<f32>(), y.into_host());
    by_power!(near.beta, |power| inlined!(
        for_each_sum(cpu, near, y),
        |range, to| squares(x, range, to),
        |range, sums, y| {
            for ((y, &x), &sum) in y.iter_mut().zip(&x[range]).zip(sums) {
                *y = x * power(near.scale(sum));
            }
        }
    ));
}

/// What is summed are the ratios `dy * x * scale^(-beta - 1)`.
pub(super) fn backward(
    cpu: &Cpu,
    near: &Neighbourhood,
    inputs: [View<'_>; 2],
    dx: Out<'_>,
    scale: Option<ViewMut<'_>>,
) {
    let ([x, dy], (dx, accumulate)) = (inputs.map(|input| input.host::<f32>()), dx.into_host());
    let known = scale.map(|scale| {
        let scale = scale.into_host::<f32>();
        inlined!(
            for_each_sum(cpu, near, &mut *scale),
            |range, to| squares(x, range, to),
            |_, sums, scale| {
                scale.iter_mut().zip(sums).for_each(|(scale, &sum)| *scale = near.scale(sum));
            }
        );
        &*scale
    });
    by_power!(near.beta, |power| inlined!(
        for_each_sum(cpu, near, dx),
        |range, to| {
            scale_of(near, known, x, range.clone(), to);
            for ((to, &x), &dy) in to.iter_mut().zip(&x[range.clone()]).zip(&dy[range]) {
                *to = dy * x * (power(*to) / *to);
            }
        },
        |range, sums, dx| {
            let scale = &mut [0.0; MAX_WIDTH][..range.len()];
            scale_of(near, known, x, range.clone(), scale);
            let (factor, accumulate) = (near.factors[1], accumulate);
            let inputs = scale.iter().zip(&x[range.clone()]).zip(&dy[range]);
            for ((dx, ((&scale, &x), &dy)), &sum) in dx.iter_mut().zip(inputs).zip(sums) {
                put(accumulate, dx, dy * power(scale) - factor * x * sum);
            }
        }
    ));
}
