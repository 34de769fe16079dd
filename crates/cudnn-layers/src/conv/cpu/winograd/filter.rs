//! Filters at the points, `G g G^T`, and the adjoint, which makes gradients of filters.

use super::layout::{CHANNELS, Spectrum};
use super::minimal::{A, Filter, FilterAdjoint, square};
use crate::conv::ConvOp;
use crate::conv::cpu::planes::{Signals, pixels_len, store};
use std::ops::Range;
use tensor::Accumulate;
use tensor::cpu::{LANES, Lanes, SharedMut, WithLanes};

/// Taps of a filter.
pub(super) const TAPS: usize = 9;

/// Some filters of a group, and where they lie at the points.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Channels of the group, as the correlation sees them.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Blocks of output channels.
    pub(super) blocks: Range<usize>,
    /// Input channels, at most [`CHANNELS`].
    pub(super) channels: Range<usize>,
    /// Rows are input channels, columns output channels.
    pub(super) layout: Spectrum,
    /// The panel of `layout` that holds the blocks.
    pub(super) panel: usize,
    /// The row of `layout` that holds the first channel.
    pub(super) row: usize,
}

impl Part {
    fn range(&self, frequency: usize) -> Range<usize> {
        self.layout.range(frequency, self.panel, self.row..self.row + self.channels.len())
    }

    /// The blocks, each with the column of the panel that it starts at.
    fn columns(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        self.blocks.clone().zip((0..).step_by(LANES))
    }
}

/// Transforms a part of the filters.
pub(super) struct TransformFilter<'a> {
    /// In backward data the filters are rotated by 180 degrees, and the first index of `w` is the input channel.
    pub(super) op: ConvOp,
    /// The filters of the group.
    pub(super) w: &'a [f32],
    pub(super) part: Part,
    pub(super) to: &'a SharedMut<'a>,
}

impl WithLanes for TransformFilter<'_> {
    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        let mut taps = [0.0; CHANNELS * LANES * LANES];
        let width = self.part.layout.width(self.part.panel);
        let mut targets: [[&mut [f32]; A]; A] =
            std::array::from_fn(|_| std::array::from_fn(|_| Default::default()));
        for (frequency, target) in targets.as_flattened_mut().iter_mut().enumerate() {
            // SAFETY: frequencies are disjoint, and tasks transform different parts.
            *target = unsafe { self.to.slice(self.part.range(frequency)) };
        }
        for (block, columns) in self.part.columns() {
            let distance = self.gather(lanes, block, &mut taps);
            for channel in 0..self.part.channels.len() {
                let taps = &taps[channel * distance..];
                let mut g = [[lanes.zero(); 3]; 3];
                for (tap, value) in g.as_flattened_mut().iter_mut().enumerate() {
                    let at = if self.op == ConvOp::Forward { tap } else { TAPS - 1 - tap };
                    let from: &[f32; LANES] = taps[at * LANES..][..LANES].try_into().expect("16 elements");
                    *value = lanes.load(from);
                }
                let points = square::<Filter, L, 3, A>(lanes, g);
                for (targets, points) in targets.iter_mut().zip(&points) {
                    for (target, &point) in targets.iter_mut().zip(points) {
                        store(lanes, target, channel * width + columns, point);
                    }
                }
            }
        }
    }
}

impl TransformFilter<'_> {
    /// Brings the taps of sixteen output channels side by side; returns the distance between input channels.
    #[inline(always)]
    fn gather<L: Lanes>(&self, lanes: L, block: usize, taps: &mut [f32]) -> usize {
        let Part { inputs, outputs, channels, .. } = &self.part;
        let first = block * LANES;
        let count = (outputs - first).min(LANES);
        match self.op {
            ConvOp::Forward => {
                let start = (first * inputs + channels.start) * TAPS;
                let filters = Signals { count, stride: inputs * TAPS };
                filters.gather_pixels(lanes, &self.w[start..], channels.len() * TAPS, taps);
                TAPS * LANES
            }
            _ => {
                for (channel, taps) in channels.clone().zip(taps.chunks_exact_mut(LANES * LANES)) {
                    let start = (channel * outputs + first) * TAPS;
                    Signals { count, stride: TAPS }.gather_pixels(lanes, &self.w[start..], TAPS, taps);
                }
                LANES * LANES
            }
        }
    }
}

/// Transforms gradients at the points into a part of `dw`.
pub(super) struct FilterGradient<'a> {
    pub(super) part: Part,
    pub(super) from: &'a [f32],
    /// The gradients of all groups, and where this group's start.
    pub(super) dw: &'a SharedMut<'a>,
    pub(super) start: usize,
    pub(super) accumulate: Accumulate,
}

impl WithLanes for FilterGradient<'_> {
    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        let mut taps = [0.0; pixels_len(CHANNELS * TAPS)];
        let Part { inputs, outputs, channels, layout, panel, .. } = &self.part;
        let width = layout.width(*panel);
        for (block, columns) in self.part.columns() {
            for channel in 0..channels.len() {
                let mut points = [[lanes.zero(); A]; A];
                for (frequency, point) in points.as_flattened_mut().iter_mut().enumerate() {
                    let from = &self.from[self.part.range(frequency)][channel * width + columns..][..LANES];
                    // SAFETY: the slice has sixteen elements.
                    *point = unsafe { lanes.load_ptr(from.as_ptr()) };
                }
                let gradients = square::<FilterAdjoint, L, A, 3>(lanes, points);
                for (tap, &gradient) in gradients.as_flattened().iter().enumerate() {
                    store(lanes, &mut taps, (channel * TAPS + tap) * LANES, gradient);
                }
            }
            let first = self.start + (block * LANES * inputs + channels.start) * TAPS;
            let filters = Signals { count: (outputs - block * LANES).min(LANES), stride: inputs * TAPS };
            let (place, mode) = ((first, channels.len() * TAPS), (1.0, self.accumulate));
            // SAFETY: tasks transform different parts.
            unsafe { filters.scatter_pixels(lanes, &taps, self.dw, place, mode) };
        }
    }
}
