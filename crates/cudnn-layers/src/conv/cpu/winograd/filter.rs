//! Filters at the points, `G g G^T`.

use super::{
    layout::{CHANNELS, Planes, Spectrum},
    minimal::{A, Filter, square},
    pixels::gather,
};
use crate::conv::ConvOp;
use std::ops::Range;
use tensor::cpu::{
    SharedMut,
    simd::{LANES, Lanes, WithLanes},
};

/// Taps of a filter.
pub(super) const TAPS: usize = 9;

/// Transforms some filters of a group into a panel.
pub(super) struct TransformFilter<'a> {
    /// In backward data the filters are rotated by 180 degrees, and the first index of `w` is the input channel.
    pub(super) op: ConvOp,
    /// The filters of the group.
    pub(super) w: &'a [f32],
    /// Channels of the group, as the correlation sees them.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Input channels, at most [`CHANNELS`].
    pub(super) channels: Range<usize>,
    /// Rows are input channels, columns output channels.
    pub(super) layout: Spectrum,
    pub(super) panel: usize,
    pub(super) to: SharedMut<'a>,
}

/// Elements for the taps of a task's channels.
const SCRATCH: usize = CHANNELS * LANES * LANES;

impl WithLanes for TransformFilter<'_> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        let mut taps = [0.0; SCRATCH];
        let width = self.layout.width(self.panel);
        let mut targets: [[&mut [f32]; A]; A] =
            std::array::from_fn(|_| std::array::from_fn(|_| Default::default()));
        for (frequency, target) in targets.as_flattened_mut().iter_mut().enumerate() {
            // SAFETY: frequencies are disjoint, and tasks transform different parts.
            *target =
                unsafe { self.to.slice(self.layout.range(frequency, self.panel, self.channels.clone())) };
        }
        for (block, columns) in self.layout.panel_blocks(self.panel).zip((0..).step_by(LANES)) {
            let distance = self.gather(lanes, block, &mut taps);
            for channel in 0..self.channels.len() {
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
                        let to = &mut target[channel * width + columns..][..LANES];
                        // SAFETY: the slice has sixteen elements.
                        unsafe { lanes.store_ptr(to.as_mut_ptr(), point) };
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
        let Self { inputs, outputs, channels, .. } = self;
        let first = block * LANES;
        let count = (outputs - first).min(LANES);
        match self.op {
            ConvOp::Forward => {
                let start = (first * inputs + channels.start) * TAPS;
                let len = channels.len() * TAPS;
                gather(lanes, self.w, Planes { first: start, stride: inputs * TAPS, count, len }, taps);
                TAPS * LANES
            }
            _ => {
                for (channel, taps) in channels.clone().zip(taps.chunks_exact_mut(LANES * LANES)) {
                    let start = (channel * outputs + first) * TAPS;
                    gather(lanes, self.w, Planes { first: start, stride: TAPS, count, len: TAPS }, taps);
                }
                LANES * LANES
            }
        }
    }
}
