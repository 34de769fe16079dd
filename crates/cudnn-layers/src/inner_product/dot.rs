//! Products of rows of the weights with rows of the samples: both run along memory, so neither is packed or transposed.

use super::stream::{MAX_SAMPLES, prefetch};
use crate::{
    AxisExtents,
    cpu_loops::{for_each_column_block, put},
};
use std::ops::Range;
use tensor::{
    Accumulate, Cpu,
    cpu::simd::{LANES, Lanes, WithLanes, dispatch},
};

/// Rows of the weights and of the samples in a register tile: 24 accumulators of the 32 registers of AVX-512, and 10
/// loads for 24 multiply-adds.
const TILE: [usize; 2] = [6, 4];
/// Terms summed before a partial sum is reduced across its lanes: six rows of weights this long fit the first-level
/// cache and serve all samples from there.
const TERMS: usize = 1024;
/// Multiply-adds of a task.
const TASK_WORK: usize = 1 << 20;

/// `c[s][o] (+)= sum over i of a[s][i] * w[o][i]` for `[samples, terms, outputs]`.
pub(super) fn rows_by_rows(
    cpu: &Cpu,
    [n, k, m]: [usize; 3],
    a: &[f32],
    w: &[f32],
    c: &mut [f32],
    accumulate: Accumulate,
) {
    if k == 0 {
        return if accumulate == Accumulate::Replace {
            c.fill(0.0)
        };
    }
    let extents = AxisExtents { outer: 1, axis: n, inner: m };
    let run = (TASK_WORK / (n * k * TILE[0]).max(1)).max(1);
    for_each_column_block(
        cpu,
        &extents,
        (TILE[0], run),
        [c],
        #[inline(always)]
        |_, outputs, [mut c]| {
            let mut sums = [0.0; MAX_SAMPLES * TILE[0]];
            let sums = &mut sums[..n * TILE[0]];
            dispatch(Dots {
                k,
                a,
                w: &w[outputs.start * k..outputs.end * k],
                next: &w[outputs.end * k..],
                sums,
            });
            for (sample, sums) in sums.chunks_exact(TILE[0]).enumerate() {
                c.row(sample).iter_mut().zip(sums).for_each(|(c, &sum)| put(accumulate, c, sum));
            }
        },
    );
}

/// The products of up to six rows `w` of weights with all samples, added to `sums[sample][row of w]`.
struct Dots<'a> {
    k: usize,
    a: &'a [f32],
    w: &'a [f32],
    /// The weights after these, which will be wanted next.
    next: &'a [f32],
    sums: &'a mut [f32],
}

impl WithLanes for Dots<'_> {
    type Output = ();
    #[inline(always)]
    fn call<L: Lanes>(mut self, lanes: L) {
        for first in (0..self.k).step_by(TERMS) {
            let terms = first..(first + TERMS).min(self.k);
            if self.w.len() == TILE[0] * self.k {
                self.full_tiles(lanes, terms);
            } else {
                self.row_by_row(lanes, terms);
            }
        }
    }
}

impl<'a> Dots<'a> {
    #[inline(always)]
    fn full_tiles<L: Lanes>(&mut self, lanes: L, terms: Range<usize>) {
        let w: [_; TILE[0]] = std::array::from_fn(|row| &self.w[row * self.k..][terms.clone()]);
        let mut samples = self.a.chunks_exact(self.k).map(|sample| &sample[terms.clone()]);
        let mut sums = self.sums.chunks_exact_mut(TILE[0]);
        let mut ahead = (0..).map(|row| ahead(self.k, self.w, self.next, row, &terms));
        while samples.len() >= TILE[1] {
            let x: [_; TILE[1]] = std::array::from_fn(|_| samples.next().expect("as many samples"));
            let tile = tile(lanes, &w, &x, ahead.next().expect("without end"));
            for (s, sums) in sums.by_ref().take(TILE[1]).enumerate() {
                sums.iter_mut().zip(tile).for_each(|(sum, row)| *sum += row[s]);
            }
        }
        for (x, sums) in samples.zip(sums) {
            let tile = tile(lanes, &w, &[x], ahead.next().expect("without end"));
            sums.iter_mut().zip(tile).for_each(|(sum, row)| *sum += row[0]);
        }
    }

    /// The last rows of the weights, too few for a tile.
    #[inline(always)]
    fn row_by_row<L: Lanes>(&mut self, lanes: L, terms: Range<usize>) {
        let samples = self.a.chunks_exact(self.k).zip(self.sums.chunks_exact_mut(TILE[0]));
        for (x, sums) in samples {
            for (w, sum) in self.w.chunks_exact(self.k).zip(sums) {
                let w = &w[terms.clone()];
                *sum += tile(lanes, &[w], &[&x[terms.clone()]], w)[0][0];
            }
        }
    }
}

/// What follows the terms in use of weight row `row`: further along the row, or the start of the row six below. Past the
/// tile's rows, and past the end of the weights, something that is in cache already.
#[inline(always)]
fn ahead<'a>(k: usize, w: &'a [f32], next: &'a [f32], row: usize, terms: &Range<usize>) -> &'a [f32] {
    let (from, start) = if terms.end < k { (w, row * k + terms.end) } else { (next, row * k) };
    if row < TILE[0] && start < from.len() { &from[start..] } else { w }
}

/// Products of `R` rows with `S` rows of one length. Meanwhile fetches as many elements of `ahead`: of the tiles that
/// share their rows of weights the first alone would wait for memory, and the others would leave it idle.
#[inline(always)]
fn tile<L: Lanes, const R: usize, const S: usize>(
    lanes: L,
    w: &[&[f32]; R],
    x: &[&[f32]; S],
    ahead: &[f32],
) -> [[f32; S]; R] {
    let steps = x[0].len() / LANES;
    let mut products =
        lane_products(lanes, w.map(|w| &w[..steps * LANES]), x.map(|x| &x[..steps * LANES]), ahead);
    for (products, w) in products.iter_mut().zip(w) {
        for (products, x) in products.iter_mut().zip(x) {
            let rest = w[steps * LANES..].iter().zip(&x[steps * LANES..]);
            products.iter_mut().zip(rest).for_each(|(product, (w, x))| *product += w * x);
        }
    }
    products.map(|row| row.map(tree_sum))
}

/// The products of each lane, not yet summed across lanes. Lengths are one multiple of [`LANES`].
#[inline(always)]
fn lane_products<L: Lanes, const R: usize, const S: usize>(
    lanes: L,
    w: [&[f32]; R],
    x: [&[f32]; S],
    ahead: &[f32],
) -> [[[f32; LANES]; S]; R] {
    let len = x[0].len();
    assert!(w.iter().chain(&x).all(|row| row.len() == len), "rows of one length");
    let (mut wp, mut xp) = (w.map(<[f32]>::as_ptr), x.map(<[f32]>::as_ptr));
    let mut sums = [[lanes.zero(); S]; R];
    for step in 0..len / LANES {
        prefetch(ahead, step * LANES);
        // SAFETY: all rows have `len` elements, of which the pointers have passed `step` blocks of 16.
        let x: [L::V; S] = std::array::from_fn(|s| unsafe { lanes.load_ptr(xp[s]) });
        for (w, sums) in wp.iter_mut().zip(&mut sums) {
            // SAFETY: as above.
            let left = unsafe { lanes.load_ptr(*w) };
            for (sum, &right) in sums.iter_mut().zip(&x) {
                *sum = lanes.mul_add(left, right, *sum);
            }
            *w = w.wrapping_add(LANES);
        }
        xp.iter_mut().for_each(|x| *x = x.wrapping_add(LANES));
    }
    let mut products = [[[0.0; LANES]; S]; R];
    for (products, sums) in products.iter_mut().zip(&sums) {
        for (product, &sum) in products.iter_mut().zip(sums) {
            *product = lanes.to_array(sum);
        }
    }
    products
}

#[inline(always)]
fn tree_sum(mut lanes: [f32; LANES]) -> f32 {
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
    }
    lanes[0]
}
