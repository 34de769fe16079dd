//! Filters at the points, `G g G^T`, and the adjoint, which makes gradients of filters.

use super::{
    layout::{Planes, Spectrum},
    minimal::{Transform, square},
    pixels::{gather, pixels_len, scatter},
};
use std::{marker::PhantomData, ops::Range};
use tensor::{
    Accumulate,
    cpu::{
        SharedMut,
        simd::{LANES, Lanes, WithLanes},
    },
};

/// Taps of a filter.
pub(super) const TAPS: usize = 9;
/// Input channels that one task transforms.
pub(super) const CHANNELS: usize = 16;

/// Which way the filters are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// As they are: the first index of `w` is the output channel.
    Forward,
    /// Rotated by 180 degrees: the first index of `w` is the input channel.
    Backward,
}

/// Transforms a panel of output channels and a few input channels of the filters.
pub(super) struct TransformFilter<'a, T, const A: usize> {
    pub(super) transform: PhantomData<T>,
    pub(super) direction: Direction,
    /// The filters of one group.
    pub(super) w: &'a [f32],
    /// Channels of one group, as the correlation sees them.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) panel: usize,
    /// Input channels to transform, at most [`CHANNELS`].
    pub(super) channels: Range<usize>,
    /// Rows are input channels, columns output channels.
    pub(super) layout: Spectrum,
    pub(super) to: &'a SharedMut<'a>,
}

/// Elements for the taps of a task's channels.
const SCRATCH: usize = CHANNELS * LANES * LANES;

impl<T: Transform<3, A>, const A: usize> WithLanes for TransformFilter<'_, T, A> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        let mut taps = [0.0; SCRATCH];
        let width = self.layout.width(self.panel);
        let mut targets: [[&mut [f32]; A]; A] =
            std::array::from_fn(|_| std::array::from_fn(|_| Default::default()));
        for (frequency, target) in targets.as_flattened_mut().iter_mut().enumerate() {
            // SAFETY: frequencies are disjoint, and tasks transform different panels or channels.
            *target =
                unsafe { self.to.slice(self.layout.range(frequency, self.panel, self.channels.clone())) };
        }
        for (block, columns) in self.layout.panel_blocks(self.panel).zip((0..).step_by(LANES)) {
            let distance = self.gather(lanes, block, &mut taps);
            for channel in 0..self.channels.len() {
                let taps = &taps[channel * distance..];
                let mut g = [[lanes.zero(); 3]; 3];
                for (tap, value) in g.as_flattened_mut().iter_mut().enumerate() {
                    let at = if self.direction == Direction::Forward { tap } else { TAPS - 1 - tap };
                    let from: &[f32; LANES] = taps[at * LANES..][..LANES].try_into().expect("16 elements");
                    *value = lanes.load(from);
                }
                let points = square::<T, L, 3, A>(lanes, g);
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

impl<T: Transform<3, A>, const A: usize> TransformFilter<'_, T, A> {
    /// Brings the taps of sixteen output channels side by side; returns the distance between input channels.
    #[inline(always)]
    fn gather<L: Lanes>(&self, lanes: L, block: usize, taps: &mut [f32]) -> usize {
        let first = block * LANES;
        let count = (self.outputs - first).min(LANES);
        match self.direction {
            Direction::Forward => {
                let start = (first * self.inputs + self.channels.start) * TAPS;
                let len = self.channels.len() * TAPS;
                gather(lanes, self.w, Planes { first: start, stride: self.inputs * TAPS, count, len }, taps);
                TAPS * LANES
            }
            Direction::Backward => {
                for (channel, taps) in self.channels.clone().zip(taps.chunks_exact_mut(LANES * LANES)) {
                    let start = (channel * self.outputs + first) * TAPS;
                    gather(lanes, self.w, Planes { first: start, stride: TAPS, count, len: TAPS }, taps);
                }
                LANES * LANES
            }
        }
    }
}

/// Transforms gradients at the points, for a panel of output channels and a few input channels, into `dw`.
pub(super) struct FilterGradient<'a, T, const A: usize> {
    pub(super) transform: PhantomData<T>,
    /// Channels of one group.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) panel: usize,
    /// Input channels to transform, at most [`CHANNELS`].
    pub(super) channels: Range<usize>,
    /// Rows are input channels, columns output channels.
    pub(super) layout: Spectrum,
    /// Partial sums one after the other, each of `layout`'s length.
    pub(super) from: &'a [f32],
    /// The gradients of all groups, and where this group's start.
    pub(super) dw: &'a SharedMut<'a>,
    pub(super) start: usize,
    pub(super) accumulate: Accumulate,
}

impl<T: Transform<A, 3>, const A: usize> WithLanes for FilterGradient<'_, T, A> {
    type Output = ();

    #[inline(always)]
    fn call<L: Lanes>(self, lanes: L) {
        let mut taps = [0.0; pixels_len(CHANNELS * TAPS)];
        let width = self.layout.width(self.panel);
        for (block, columns) in self.layout.panel_blocks(self.panel).zip((0..).step_by(LANES)) {
            for channel in 0..self.channels.len() {
                let mut points = [[lanes.zero(); A]; A];
                for (frequency, point) in points.as_flattened_mut().iter_mut().enumerate() {
                    let rows = self.layout.range(frequency, self.panel, self.channels.clone());
                    for sum in self.from.chunks_exact(self.layout.len()) {
                        let from = &sum[rows.clone()][channel * width + columns..][..LANES];
                        // SAFETY: the slice has sixteen elements.
                        *point = lanes.add(*point, unsafe { lanes.load_ptr(from.as_ptr()) });
                    }
                }
                let gradients = square::<T, L, A, 3>(lanes, points);
                for (tap, &gradient) in gradients.as_flattened().iter().enumerate() {
                    let to = &mut taps[(channel * TAPS + tap) * LANES..][..LANES];
                    // SAFETY: the slice has sixteen elements.
                    unsafe { lanes.store_ptr(to.as_mut_ptr(), gradient) };
                }
            }
            let planes = Planes {
                first: self.start + (block * LANES * self.inputs + self.channels.start) * TAPS,
                stride: self.inputs * TAPS,
                count: (self.outputs - block * LANES).min(LANES),
                len: self.channels.len() * TAPS,
            };
            // SAFETY: tasks transform different panels or channels.
            unsafe { scatter(lanes, &taps, self.dw, planes, self.accumulate) };
        }
    }
}
