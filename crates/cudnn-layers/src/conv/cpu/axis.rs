//! Index arithmetic: which input a pair of output and tap reads, and cutting index spaces into pieces.

use num_integer::gcd;
use std::ops::Range;
use tensor::ConvGeometry;

/// One axis of a correlation: output `i`, which lies at `out_start + out_step * i` of the output image, reads with its
/// tap `j` the input at `in_step * i + offset + offset_step * j`.
///
/// A forward pass is one correlation of `x`. Backward data is one correlation of `dy` for each residue of the pixel of
/// `dx` modulo the stride, its *phase*: pixels of one phase meet the same taps of the filter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) out_start: usize,
    pub(super) out_step: usize,
    pub(super) outputs: usize,
    pub(super) in_step: usize,
    pub(super) in_len: usize,
    /// Tap `j` is the filter's element `tap_start + tap_step * j`.
    pub(super) tap_start: usize,
    pub(super) tap_step: usize,
    pub(super) taps: usize,
    offset: isize,
    offset_step: isize,
}

impl Axis {
    /// The axis (0 vertical, 1 horizontal) of a forward pass.
    pub(super) fn forward(g: &ConvGeometry, axis: usize) -> Self {
        Self {
            out_start: 0,
            out_step: 1,
            outputs: [g.out_h(), g.out_w()][axis],
            in_step: g.stride[axis],
            in_len: [g.h, g.w][axis],
            tap_start: 0,
            tap_step: 1,
            taps: [g.r, g.s][axis],
            offset: -(g.pad[axis] as isize),
            offset_step: g.dilation[axis] as isize,
        }
    }

    /// The axes of backward data, one for each phase in which pixels and taps meet, by rising phase: `dx` at
    /// `phase + stride * i` from `dy`. Pixel `u` of `dx` meets tap `r` in output `(u + pad - r * dilation) / stride`
    /// where that division leaves no remainder. There are as many as the filter has taps at most, however large the
    /// stride is.
    pub(super) fn backward(g: &ConvGeometry, axis: usize) -> Vec<Self> {
        let (stride, dilation) = (g.stride[axis] as isize, g.dilation[axis]);
        let (filter, image) = ([g.r, g.s][axis], [g.h, g.w][axis]);
        let tap_step = g.stride[axis] / gcd(g.stride[axis], dilation);
        let position = |tap: usize| (tap * dilation) as isize - g.pad[axis] as isize;
        let first_taps = 0..filter.min(tap_step); // the taps after these meet the same pixels
        let mut axes: Vec<Self> = first_taps
            .map(|tap| (position(tap).rem_euclid(stride) as usize, tap))
            .filter(|&(phase, _)| phase < image)
            .map(|(phase, tap)| Self {
                out_start: phase,
                out_step: g.stride[axis],
                outputs: (image - phase).div_ceil(g.stride[axis]),
                in_step: 1,
                in_len: [g.out_h(), g.out_w()][axis],
                tap_start: tap,
                tap_step,
                taps: (filter - tap).div_ceil(tap_step),
                offset: (phase as isize - position(tap)) / stride,
                offset_step: -((tap_step * dilation / g.stride[axis]) as isize),
            })
            .collect();
        axes.sort_unstable_by_key(|axis| axis.out_start);
        axes
    }

    /// The input that `output` reads with `tap`; outside the image where it is padding.
    pub(super) fn input(&self, output: usize, tap: usize) -> isize {
        (self.in_step * output) as isize + self.offset + self.offset_step * tap as isize
    }

    fn is_inside(&self, output: usize, tap: usize) -> bool {
        (0..self.in_len as isize).contains(&self.input(output, tap))
    }

    /// Those of `taps` with which `output` reads the image and not the padding.
    pub(super) fn taps_inside(&self, output: usize, taps: &Range<usize>) -> Range<usize> {
        inside(taps, |tap| self.is_inside(output, tap))
    }

    /// Those of `outputs` that read the image and not the padding with `tap`.
    pub(super) fn outputs_inside(&self, tap: usize, outputs: &Range<usize>) -> Range<usize> {
        inside(outputs, |output| self.is_inside(output, tap))
    }

    /// The first input that `outputs` read with `taps`, and how many there are from there to the last.
    pub(super) fn window(&self, outputs: &Range<usize>, taps: &Range<usize>) -> (isize, usize) {
        let [from, to] = [taps.start, taps.end - 1];
        let first = self.input(outputs.start, from).min(self.input(outputs.start, to));
        let last = self.input(outputs.end - 1, from).max(self.input(outputs.end - 1, to));
        (first, (last - first + 1) as usize)
    }

    /// Whether no output reads padding.
    pub(super) fn is_unpadded(&self) -> bool {
        let (first, len) = self.window(&(0..self.outputs), &(0..self.taps));
        first >= 0 && first as usize + len <= self.in_len
    }

    /// Which tap the filter's element `index` is, if it is one.
    pub(super) fn tap(&self, index: usize) -> Option<usize> {
        let steps = index.checked_sub(self.tap_start)?;
        steps.is_multiple_of(self.tap_step).then(|| steps / self.tap_step)
    }
}

/// The sub-range that satisfies a condition which holds on an interval.
fn inside(range: &Range<usize>, holds: impl Fn(usize) -> bool) -> Range<usize> {
    let start = range.clone().find(|&at| holds(at)).unwrap_or(range.end);
    let end = (start..range.end).rfind(|&at| holds(at)).map_or(start, |last| last + 1);
    start..end
}

/// A three-dimensional index space cut into nearly equal boxes of at most a number of points; an outer index is grouped
/// only where all inner ones fit whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) extents: [usize; 3],
    parts: [usize; 3],
}

impl Cut {
    pub(super) fn new(extents: [usize; 3], limit: usize) -> Self {
        let mut points = limit.max(1);
        let mut parts = [1; 3];
        for axis in (0..3).rev() {
            parts[axis] = extents[axis].div_ceil(points.max(1));
            points /= extents[axis].max(1);
        }
        Self { extents, parts }
    }

    /// The number of boxes; none of an empty space.
    pub(super) fn pieces(&self) -> usize {
        self.parts.iter().product()
    }

    /// Box `index`, the innermost axis running fastest.
    pub(super) fn piece(&self, index: usize) -> [Range<usize>; 3] {
        let [_, middle, inner] = self.parts;
        let at = [index / (middle * inner), index / inner % middle, index % inner];
        std::array::from_fn(|axis| part(self.extents[axis], self.parts[axis], at[axis]))
    }

    /// The largest extents of a box.
    pub(super) fn largest(&self) -> [usize; 3] {
        std::array::from_fn(|axis| self.extents[axis].div_ceil(self.parts[axis].max(1)))
    }

    /// No box has more points than this.
    pub(super) fn most_points(&self) -> usize {
        self.largest().iter().product()
    }
}

/// Range `index` of `len` items cut into `parts` nearly equal ones.
pub(super) fn part(len: usize, parts: usize, index: usize) -> Range<usize> {
    len * index / parts..len * (index + 1) / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_meet_every_pair_of_pixel_and_output_once() {
        for (stride, dilation, pad, filter, image) in
            [(1, 1, 1, 3, 7), (2, 1, 3, 7, 12), (3, 2, 2, 4, 11), (4, 6, 0, 2, 9), (5, 1, 0, 2, 4)]
        {
            let g = ConvGeometry::new([1, 1, image, image], 1, [filter, filter]);
            let g = g.stride([stride; 2]).dilation([dilation; 2]).pad([pad; 2]).validate().unwrap();
            let mut pairs = Vec::new();
            let forward = Axis::forward(&g, 0);
            for (p, r) in (0..forward.outputs).flat_map(|p| (0..filter).map(move |r| (p, r))) {
                if forward.is_inside(p, r) {
                    pairs.push((forward.input(p, r) as usize, r, p));
                }
            }
            let mut backward = Vec::new();
            let axes = Axis::backward(&g, 0);
            assert!(axes.is_sorted_by(|a, b| a.out_start < b.out_start));
            for axis in axes {
                for (i, j) in (0..axis.outputs).flat_map(|i| (0..axis.taps).map(move |j| (i, j))) {
                    if axis.is_inside(i, j) {
                        let tap = axis.tap_start + axis.tap_step * j;
                        assert_eq!(axis.tap(tap), Some(j));
                        backward.push((axis.out_start + axis.out_step * i, tap, axis.input(i, j) as usize));
                    }
                }
            }
            pairs.sort_unstable();
            backward.sort_unstable();
            assert_eq!(pairs, backward);
        }
    }

    #[test]
    fn phases_are_no_more_than_taps() {
        let g = ConvGeometry::new([1, 1, 1 << 20, 9], 1, [3, 2]).stride([1 << 30, 4]).validate().unwrap();
        let starts = |axis| Axis::backward(&g, axis).iter().map(|axis| axis.out_start).collect::<Vec<_>>();
        assert_eq!((starts(0), starts(1)), (vec![0, 1, 2], vec![0, 1]));
    }

    #[test]
    fn boxes_cover_the_space_within_the_limit() {
        for (extents, limit) in [([5, 3, 3], 20), ([4, 13, 13], 192), ([2, 4, 300], 64), ([1, 1, 1], 0)] {
            let cut = Cut::new(extents, limit);
            let points = (0..cut.pieces())
                .map(|index| cut.piece(index).map(|range| range.len()).iter().product::<usize>());
            assert!(points.clone().all(|points| points > 0 && points <= limit.max(1)));
            assert_eq!(points.sum::<usize>(), extents.iter().product::<usize>());
        }
        assert_eq!(Cut::new([3, 0, 2], 8).pieces(), 0);
    }
}
