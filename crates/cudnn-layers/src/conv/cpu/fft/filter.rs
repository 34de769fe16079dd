//! Filters to row spectra, and row spectra to gradients of filters.

use super::super::super::ConvOp;
use super::{
    complex::{BIN, CLEARED, ComplexLanes, Row, real_fft},
    image::{bins, bins_mut, row_values},
    lanes::Signals,
    plan::Plan,
};
use tensor::{
    Accumulate,
    cpu::{
        SharedMut,
        simd::{LANES, Lanes, WithLanes},
    },
};

/// Terms in one task.
const CHUNK: usize = 16;

/// The task of transforming the rows of the filters of one vector of columns and up to sixteen terms.
pub(super) struct AnalyseFilter<'a> {
    pub(super) plan: &'a Plan,
    pub(super) filter: &'a [f32],
    pub(super) spectra: SharedMut<'a>,
    pub(super) index: usize,
    pub(super) scratch: &'a mut [f32],
}

impl AnalyseFilter<'_> {
    /// The number of tasks.
    pub(super) fn tasks(plan: &Plan) -> usize {
        let [_, terms, vectors] = plan.extents;
        plan.geometry.groups * vectors * terms.div_ceil(CHUNK)
    }
}

impl WithLanes for AnalyseFilter<'_> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, l: L) {
        if self.plan.t == 32 { self.filters::<L, 32>(l) } else { self.filters::<L, 16>(l) }
    }
}

impl AnalyseFilter<'_> {
    #[inline(always)]
    fn filters<L: Lanes, const T: usize>(self, l: L) {
        let (plan, g) = (self.plan, &self.plan.geometry);
        let [_, terms, vectors] = plan.extents;
        let chunks = terms.div_ceil(CHUNK);
        let (chunk, vector) = (self.index % chunks, self.index / chunks % vectors);
        let group = self.index / chunks / vectors;
        let [r, s, taps] = [g.r, g.s, g.r * g.s];
        let mut work = [CLEARED; 2];
        let mut values = Row::CLEARED;
        let rows = self.scratch[..taps * LANES].as_chunks_mut::<LANES>().0;
        for term in chunk * CHUNK..((chunk + 1) * CHUNK).min(terms) {
            let (first, signals) = lanes_of_filter(plan, group, term, vector);
            for tap in (0..taps).step_by(LANES) {
                let len = (taps - tap).min(LANES);
                let gathered = signals.gather(l, &self.filter[first..], tap, len);
                for (i, &gathered) in gathered.iter().enumerate().take(len) {
                    // The forward pass is a correlation: it reads the filter backwards.
                    let to = if plan.op == ConvOp::Forward { taps - 1 - (tap + i) } else { tap + i };
                    l.store(&mut rows[to], gathered);
                }
            }
            for row in 0..r {
                values.0[..s].copy_from_slice(&rows[row * s..][..s]);
                real_fft(
                    l,
                    T,
                    &mut work,
                    &values,
                    #[inline(always)]
                    |j, z| {
                        let at = ((((group * T / 2 + j) * vectors + vector) * terms + term) * r + row) * BIN;
                        // SAFETY: these bins belong to this term and vector alone.
                        let to = unsafe { self.spectra.slice(at..at + BIN) };
                        l.store_bin(&mut bins_mut(to)[0], z);
                    },
                );
            }
        }
    }
}

/// Where in the filter the taps of `term` and of the sixteen columns of `vector` lie.
fn lanes_of_filter(plan: &Plan, group: usize, term: usize, vector: usize) -> (usize, Signals) {
    let g = &plan.geometry;
    let [c, k, taps] = [g.c / g.groups, g.k / g.groups, g.r * g.s];
    let count = (plan.columns - vector * LANES).min(LANES);
    match plan.op {
        // Columns are output channels.
        ConvOp::Forward => {
            (((group * k + vector * LANES) * c + term) * taps, Signals { count, stride: c * taps })
        }
        // Columns are input channels.
        ConvOp::BackwardData | ConvOp::BackwardFilter => {
            (((group * k + term) * c + vector * LANES) * taps, Signals { count, stride: taps })
        }
    }
}

/// The task of transforming the gradient of the filters of one output channel back.
pub(super) struct SynthesiseFilter<'a> {
    pub(super) plan: &'a Plan,
    pub(super) rows: &'a [f32],
    pub(super) out: SharedMut<'a>,
    pub(super) accumulate: Accumulate,
    pub(super) index: usize,
    pub(super) scratch: &'a mut [f32],
}

impl SynthesiseFilter<'_> {
    /// The number of tasks.
    pub(super) fn tasks(plan: &Plan) -> usize {
        plan.geometry.k
    }
}

impl WithLanes for SynthesiseFilter<'_> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, l: L) {
        if self.plan.t == 32 { self.filters::<L, 32>(l) } else { self.filters::<L, 16>(l) }
    }
}

impl SynthesiseFilter<'_> {
    #[inline(always)]
    fn filters<L: Lanes, const T: usize>(self, l: L) {
        let (plan, g) = (self.plan, &self.plan.geometry);
        let (k, vectors) = (g.k / g.groups, plan.extents[2]);
        let [r, s, taps] = [g.r, g.s, g.r * g.s];
        let (mut work, mut values) = ([CLEARED; 2], Row::CLEARED);
        let gradient = self.scratch[..taps * LANES].as_chunks_mut::<LANES>().0;
        let len = plan.half() * r;
        for vector in 0..vectors {
            let spectra = &bins(self.rows)[(self.index * vectors + vector) * len..][..len];
            for row in 0..r {
                row_values::<L, T>(l, spectra, (row, r), &mut work, &mut values);
                gradient[row * s..][..s].copy_from_slice(&values.0[plan.first[1]..][..s]);
            }
            let (first, signals) = lanes_of_filter(plan, self.index / k, self.index % k, vector);
            // SAFETY: every task writes the filters of its own output channel.
            let out = unsafe { self.out.slice(first..first + signals.count * taps) };
            for tap in (0..taps).step_by(LANES) {
                let len = (taps - tap).min(LANES);
                let mut taps = [l.zero(); LANES];
                for (to, from) in taps.iter_mut().zip(&gradient[tap..tap + len]) {
                    *to = l.load(from);
                }
                signals.scatter(l, taps, out, (tap, len), (plan.scale(), self.accumulate));
            }
        }
    }
}
