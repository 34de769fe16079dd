//! Filters to row spectra.

use super::bins::{BIN, Bins, Work};
use super::{tiling::Tiling, transform::real_fft};
use crate::conv::{ConvOp, cpu::planes::Signals};
use tensor::cpu::{LANES, Lanes, SharedMut, WithLanes};

/// Terms in one task.
const CHUNK: usize = 16;

/// The task of transforming the rows of the filters of one vector of columns and up to sixteen terms.
pub(super) struct AnalyseFilter<'a> {
    pub(super) tiling: &'a Tiling,
    pub(super) filter: &'a [f32],
    pub(super) spectra: SharedMut<'a>,
    pub(super) index: usize,
    pub(super) scratch: &'a mut [f32],
}

impl AnalyseFilter<'_> {
    /// The number of tasks.
    pub(super) fn tasks(tiling: &Tiling) -> usize {
        let [_, terms, vectors] = tiling.extents;
        tiling.geometry.groups * vectors * terms.div_ceil(CHUNK)
    }
}

impl WithLanes for AnalyseFilter<'_> {
    #[inline(always)]
    fn call<L: Lanes>(self, l: L) {
        let (tiling, g) = (self.tiling, &self.tiling.geometry);
        let [_, terms, columns] = tiling.extents;
        let chunks = terms.div_ceil(CHUNK);
        let (chunk, column) = (self.index % chunks, self.index / chunks % columns);
        let group = self.index / chunks / columns;
        let [r, s, taps] = [g.r, g.s, g.r * g.s];
        let (mut work, mut values) = ([Work::CLEARED; 2], Work::CLEARED);
        // Bins of one column of the spectra: as many as rows of all filters of the group.
        let stride = columns * terms * r * BIN;
        for term in chunk * CHUNK..((chunk + 1) * CHUNK).min(terms) {
            let (first, signals) = lanes_of_filter(tiling, group, term, column);
            signals.gather_pixels(l, &self.filter[first..], taps, self.scratch);
            if tiling.op == ConvOp::Forward {
                // A correlation: it reads the filter backwards.
                self.scratch.as_chunks_mut::<LANES>().0[..taps].reverse();
            }
            let first = (group * tiling.half() * columns + column) * terms + term;
            for row in 0..r {
                values.0[..s * LANES].copy_from_slice(&self.scratch[row * s * LANES..][..s * LANES]);
                let first = (first * r + row) * BIN;
                assert!(
                    first + (tiling.half() - 1) * stride + BIN <= self.spectra.len(),
                    "the spectra do not fit"
                );
                // SAFETY: the assertion shows the bins to lie inside; they belong to this term and column alone.
                unsafe {
                    let to = Bins::at(self.spectra.as_ptr().wrapping_add(first), stride);
                    real_fft(l, tiling.t, &mut values, &mut work, to);
                }
            }
        }
    }
}

/// Where in the filter the taps of `term` and of the sixteen columns of number `column` lie.
pub(super) fn lanes_of_filter(tiling: &Tiling, group: usize, term: usize, column: usize) -> (usize, Signals) {
    let g = &tiling.geometry;
    let [c, k, taps] = [g.c / g.groups, g.k / g.groups, g.r * g.s];
    let count = (tiling.columns - column * LANES).min(LANES);
    // Columns are output channels, or else input channels.
    let (output, input, stride) = match tiling.op {
        ConvOp::Forward => (column * LANES, term, c * taps),
        ConvOp::BackwardData | ConvOp::BackwardFilter => (term, column * LANES, taps),
    };
    (((group * k + output) * c + input) * taps, Signals { count, stride })
}
