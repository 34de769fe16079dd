//! Products of rows of the weights with rows of the samples: both run along memory, so neither is packed or transposed.

use super::stream::prefetch;
use crate::{
    AxisExtents,
    cpu_loops::{for_each_column_block, put},
    cpu_sums::tree_sum,
};
use std::ops::Range;
use tensor::{
    Accumulate, Cpu,
    cpu::simd::{LANES, Lanes, WithLanes, dispatch},
};

/// Rows of the weights and of the samples in a register tile: 24 accumulators of the 32 registers of AVX-512, and 10
/// loads for 24 multiply-adds.
const TILE: [usize; 2] = [6, 4];
/// Terms that all samples go through before the next: six rows of weights this long and a tile's samples share the
/// first-level cache.
const TERMS: usize = 512;
/// Samples that go through the weights together; more would need more room for sums than that cache has.
const PANEL: usize = 32;
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
            let (w, next) = (&w[outputs.start * k..outputs.end * k], &w[outputs.end * k..]);
            for (panel, a) in a.chunks(PANEL * k).enumerate() {
                let mut sums = [[0.0; LANES]; PANEL * TILE[0]];
                dispatch(Dots { k, a, w, next, sums: &mut sums });
                for sample in 0..a.len() / k {
                    let sums = &sums[sample * TILE[0]..];
                    let c = c.row(panel * PANEL + sample).iter_mut().zip(sums);
                    c.for_each(|(c, &sum)| put(accumulate, c, tree_sum(sum)));
                }
            }
        },
    );
}

/// The products of up to six rows `w` of weights with a panel of samples `a`, lane by lane, added to
/// `sums[sample * 6 + row of w]`.
struct Dots<'a> {
    k: usize,
    a: &'a [f32],
    w: &'a [f32],
    /// The weights after these, which will be wanted next.
    next: &'a [f32],
    sums: &'a mut [[f32; LANES]],
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

impl Dots<'_> {
    #[inline(always)]
    fn full_tiles<L: Lanes>(&mut self, lanes: L, terms: Range<usize>) {
        let w: [_; TILE[0]] = std::array::from_fn(|row| &self.w[row * self.k..][terms.clone()]);
        let (k, samples) = (self.k, self.a.len() / self.k);
        let sample = |index: usize| &self.a[index * k..][terms.clone()];
        for (tile, first) in (0..samples).step_by(TILE[1]).enumerate() {
            let ahead = ahead(k, self.w, self.next, tile, &terms);
            let sums = &mut self.sums[first * TILE[0]..];
            if first + TILE[1] <= samples {
                let x: [_; TILE[1]] = std::array::from_fn(|s| sample(first + s));
                add_products(lanes, w, x, ahead, sums);
            } else {
                for (index, sums) in (first..samples).zip(sums.chunks_exact_mut(TILE[0])) {
                    add_products(lanes, w, [sample(index)], ahead, sums);
                }
            }
        }
    }

    /// The last rows of the weights, too few for a tile.
    #[inline(always)]
    fn row_by_row<L: Lanes>(&mut self, lanes: L, terms: Range<usize>) {
        let samples = self.a.chunks_exact(self.k).zip(self.sums.chunks_exact_mut(TILE[0]));
        for (x, sums) in samples {
            for (w, sum) in self.w.chunks_exact(self.k).zip(sums.chunks_exact_mut(1)) {
                add_products(lanes, [&w[terms.clone()]], [&x[terms.clone()]], w, sum);
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

/// Adds the products of `R` rows with `S` samples of one length to `sums[s * R + r]`. Meanwhile fetches as many elements of
/// `ahead`: of the tiles that share their rows of weights the first alone would wait for memory, and the others would
/// leave it idle.
#[inline(always)]
fn add_products<L: Lanes, const R: usize, const S: usize>(
    lanes: L,
    w: [&[f32]; R],
    x: [&[f32]; S],
    ahead: &[f32],
    sums: &mut [[f32; LANES]],
) {
    let len = x[0].len();
    assert!(w.iter().chain(&x).all(|row| row.len() == len), "rows of one length");
    add_whole_vectors(
        lanes,
        w.map(|w| &w[..len / LANES * LANES]),
        x.map(|x| &x[..len / LANES * LANES]),
        ahead,
        sums,
    );
    for (sums, x) in sums.chunks_exact_mut(R).zip(x) {
        for (sum, w) in sums.iter_mut().zip(w) {
            let rest = w[len / LANES * LANES..].iter().zip(&x[len / LANES * LANES..]);
            sum.iter_mut().zip(rest).for_each(|(sum, (w, x))| *sum += w * x);
        }
    }
}

/// [`add_products`] for lengths that are one multiple of [`LANES`].
#[inline(always)]
fn add_whole_vectors<L: Lanes, const R: usize, const S: usize>(
    lanes: L,
    w: [&[f32]; R],
    x: [&[f32]; S],
    ahead: &[f32],
    sums: &mut [[f32; LANES]],
) {
    let mut tile = [[lanes.zero(); R]; S];
    for (tile, sums) in tile.iter_mut().zip(sums.chunks_exact(R)) {
        tile.iter_mut().zip(sums).for_each(|(tile, sum)| *tile = lanes.load(sum));
    }
    let (wp, xp) = (w.map(<[f32]>::as_ptr), x.map(<[f32]>::as_ptr));
    for at in (0..x[0].len()).step_by(LANES) {
        prefetch(ahead, at);
        // SAFETY: all rows have the length of `x[0]`, of which 16 elements remain from `at` on.
        let w: [L::V; R] = std::array::from_fn(|r| unsafe { lanes.load_ptr(wp[r].wrapping_add(at)) });
        for (tile, x) in tile.iter_mut().zip(&xp) {
            // SAFETY: as above.
            let x = unsafe { lanes.load_ptr(x.wrapping_add(at)) };
            for (sum, &w) in tile.iter_mut().zip(&w) {
                *sum = lanes.mul_add(w, x, *sum);
            }
        }
    }
    for (tile, sums) in tile.iter().zip(sums.chunks_exact_mut(R)) {
        tile.iter().zip(sums).for_each(|(&tile, sum)| *sum = lanes.to_array(tile));
    }
}
