//! The scratch of a task: the part of an image that a block of pixels and taps reads, padding included, and sums of
//! products, which are turned into images or filters at the end.

use super::filter::TapBox;
use crate::conv::cpu::axis::{Axis, Cut};
use crate::conv::cpu::planes::{Signals, store};
use std::ops::Range;
use tensor::cpu::{LANES, Lanes};

/// Turns sixteen columns of `from`, whose rows lie `stride` apart, into sixteen rows of `to`, which lie `to_stride`
/// apart and have room for `rows` rounded up to sixteen.
#[inline(always)]
pub(super) fn turn_columns<L: Lanes>(
    lanes: L,
    from: &[f32],
    stride: usize,
    rows: usize,
    to: &mut [f32],
    to_stride: usize,
) {
    for row in (0..rows).step_by(LANES) {
        let signals = Signals { count: LANES.min(rows - row), stride };
        let block = signals.gather(lanes, &from[row * stride..], LANES);
        for (col, v) in block.into_iter().enumerate() {
            store(lanes, to, col * to_stride + row, v);
        }
    }
}

/// Boxes of pixels (samples, rows, columns) and of taps (channels, rows, columns), and how the patches that they read lie
/// in memory: copied with the padding's zeros around them, or the image itself where nothing is padded.
#[derive(Clone, Copy, Debug)]
pub(super) struct PatchLayout {
    pub(super) axes: [Axis; 2],
    pub(super) pixels: Cut,
    pub(super) taps: Cut,
    /// Channels of all groups, height and width of the images.
    image: [usize; 3],
    in_place: bool,
    sample: usize,
    channel: usize,
    row: usize,
    /// Elements of a copied patch.
    pub(super) len: usize,
}

/// Most elements of a patch for each product of a pixel and a tap.
const MOST_SPREAD: usize = 4096;

impl PatchLayout {
    /// For these boxes, or boxes of one, where strides and dilations that are far larger than windows take pixels and
    /// taps so far apart that most of a patch would be copied for nothing.
    pub(super) fn new(axes: [Axis; 2], image: [usize; 3], pixels: Cut, taps: Cut) -> Self {
        let layout = Self::of_boxes(axes, image, pixels, taps);
        if layout.len <= MOST_SPREAD * pixels.most_points() * taps.most_points() {
            return layout;
        }
        let [pixels, taps] = [pixels, taps].map(|cut| Cut::new(cut.extents, 1));
        Self::of_boxes(axes, image, pixels, taps)
    }

    fn of_boxes(axes: [Axis; 2], image: [usize; 3], pixels: Cut, taps: Cut) -> Self {
        let [channels, h, row] = image;
        let (sample, channel) = (channels * h * row, h * row);
        let in_image = Self { axes, pixels, taps, image, in_place: true, sample, channel, row, len: 0 };
        if axes.iter().all(Axis::is_unpadded) {
            return in_image;
        }
        let largest = [pixels.largest(), taps.largest()];
        let window =
            |axis: usize| axes[axis].window(&(0..largest[0][axis + 1]), &(0..largest[1][axis + 1])).1;
        let (rows, row) = (window(0), window(1));
        // Far apart they may be more than a number of 64 bits: then this is no layout to run with.
        let channel = rows.saturating_mul(row);
        let sample = channel.saturating_mul(largest[1][0]);
        let len = sample.saturating_mul(largest[0][0]);
        Self { in_place: false, sample, channel, row, len, ..in_image }
    }

    /// Where sample, channel, row and column of a patch lie from its start.
    fn offset(&self, [sample, channel, row, col]: [usize; 4]) -> usize {
        sample * self.sample + channel * self.channel + row * self.row + col
    }

    /// Where in their patch the windows of pixels (samples, rows, columns), by row, sample and column, start.
    pub(super) fn pixel_offsets<const N: usize>(
        &self,
        [samples, rows, cols]: &[Range<usize>; 3],
    ) -> [usize; N] {
        let mut offsets = [0; N];
        let (mut next, steps) = (offsets.iter_mut(), self.axes.map(|axis| axis.in_step));
        for (row, sample) in
            (0..rows.len()).flat_map(|row| (0..samples.len()).map(move |sample| (row, sample)))
        {
            for (col, offset) in (0..cols.len()).zip(&mut next) {
                *offset = self.offset([sample, 0, row * steps[0], col * steps[1]]);
            }
        }
        offsets
    }

    /// Where each tap lies from the start of a window.
    pub(super) fn tap_offsets<const N: usize>(&self, taps: &TapBox) -> [usize; N] {
        let mut offsets = [0; N];
        let (mut next, ranges) = (offsets.iter_mut(), [taps.rows(), taps.cols()]);
        let first = [0, 1].map(|axis| self.axes[axis].window(&(0..1), &ranges[axis]).0);
        let input = |axis: usize, tap: usize| (self.axes[axis].input(0, tap) - first[axis]) as usize;
        for row in taps.rows() {
            for channel in 0..taps.channels().len() {
                for (col, offset) in taps.cols().zip(&mut next) {
                    *offset = self.offset([0, channel, input(0, row), input(1, col)]);
                }
            }
        }
        offsets
    }

    /// The patch of `images` that pixels (samples, rows, columns) read with `taps`; its channels count from
    /// `first_channel`.
    pub(super) fn open<'a>(
        &self,
        images: &'a [f32],
        [samples, rows, cols]: [Range<usize>; 3],
        (taps, first_channel): (&TapBox, usize),
        scratch: &'a mut [f32],
    ) -> &'a [f32] {
        let rows = self.axes[0].window(&rows, &taps.rows());
        let cols = self.axes[1].window(&cols, &taps.cols());
        let channels = first_channel + taps.channels().start..first_channel + taps.channels().end;
        let [all_channels, h, w] = self.image;
        let plane = |sample: usize, channel: usize| (sample * all_channels + channel) * h * w;
        if self.in_place {
            // Unpadded: rows and columns start inside the image.
            let first = rows.0 as usize * w + cols.0 as usize;
            return &images[plane(samples.start, channels.start) + first..];
        }
        for (s, sample) in samples.enumerate() {
            for (c, channel) in channels.clone().enumerate() {
                let image = &images[plane(sample, channel)..][..h * w];
                let to = &mut scratch[self.offset([s, c, 0, 0])..][..self.channel];
                copy_padded(image, w, rows, cols, to, self.row);
            }
        }
        scratch
    }
}

/// Copies rows and columns `(first, number)` of `image` to rows `to_row` apart, zero outside the image.
fn copy_padded(
    image: &[f32],
    w: usize,
    rows: (isize, usize),
    cols: (isize, usize),
    to: &mut [f32],
    to_row: usize,
) {
    let left = (-cols.0).clamp(0, cols.1 as isize) as usize;
    let right = (w as isize - cols.0).clamp(left as isize, cols.1 as isize) as usize;
    let first = (cols.0 + left as isize) as usize;
    for (row, to) in (rows.0..).zip(to.chunks_exact_mut(to_row)).take(rows.1) {
        let to = &mut to[..cols.1];
        let from = usize::try_from(row).ok().and_then(|row| image.get(row * w..(row + 1) * w));
        let Some(from) = from.filter(|_| left < right) else {
            to.fill(0.0);
            continue;
        };
        to[..left].fill(0.0);
        to[left..right].copy_from_slice(&from[first..first + right - left]);
        to[right..].fill(0.0);
    }
}
