//! The filter as the right operand of the products: a row for each tap, output channels side by side.

use crate::conv::cpu::axis::Axis;
use crate::conv::cpu::planes::{Signals, store};
use std::ops::Range;
use tensor::cpu::{LANES, Lanes};

/// A box of taps: input channels, tap rows, tap columns. Its taps are numbered by row, then channel, then column, so
/// that the taps of consecutive rows are consecutive: an output whose upper or lower rows read only padding skips them.
pub(super) struct TapBox(pub(super) [Range<usize>; 3]);

/// Filter elements of one channel whose position in a box is looked up and not computed.
const TABLE: usize = 128;

impl TapBox {
    pub(super) fn channels(&self) -> Range<usize> {
        self.0[0].clone()
    }
    pub(super) fn rows(&self) -> Range<usize> {
        self.0[1].clone()
    }
    pub(super) fn cols(&self) -> Range<usize> {
        self.0[2].clone()
    }
    /// Taps in a row of the box.
    pub(super) fn row_len(&self) -> usize {
        self.0[0].len() * self.0[2].len()
    }
    /// Taps in the box.
    pub(super) fn len(&self) -> usize {
        self.0[1].len() * self.row_len()
    }

    /// The number, within the first channel, of the filter's element `index` (`row * s + col`), if it is in the box.
    fn number(&self, axes: &[Axis; 2], s: usize, index: usize) -> Option<usize> {
        let row = axes[0].tap(index / s).filter(|row| self.0[1].contains(row))?;
        let col = axes[1].tap(index % s).filter(|col| self.0[2].contains(col))?;
        Some((row - self.0[1].start) * self.row_len() + col - self.0[2].start)
    }
}

/// How a filter lies in memory for one operation: element `(output channel, input channel, r, s)` of a group is at
/// `out * out_stride + in * in_stride + r * s + s`.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterLayout {
    pub(super) out_channels: usize,
    pub(super) out_stride: usize,
    pub(super) in_stride: usize,
    /// Elements of one filter plane, and of one of its rows.
    pub(super) plane: usize,
    pub(super) row: usize,
}

impl FilterLayout {
    /// Writes the taps of `taps` for `vectors` vectors of output channels from `first` on: row `tap` of `to` holds
    /// their weights, zero beyond the last channel.
    #[inline(always)]
    pub(super) fn pack<L: Lanes>(
        &self,
        lanes: L,
        w: &[f32],
        axes: &[Axis; 2],
        taps: &TapBox,
        (first, vectors): (usize, usize),
        to: &mut [f32],
    ) {
        let channels = taps.channels();
        let mut table = [None; TABLE];
        for (index, number) in table.iter_mut().enumerate().take(self.plane) {
            *number = taps.number(axes, self.row, index);
        }
        let number = |index: usize| {
            if index < TABLE { table[index] } else { taps.number(axes, self.row, index) }
        };
        // Where input channels follow each other without a gap they form one run.
        let per_run = if self.in_stride == self.plane { channels.len() } else { 1 };
        for vector in 0..vectors {
            let out = first + vector * LANES;
            let rows = LANES.min(self.out_channels - out);
            for start in (0..channels.len()).step_by(per_run) {
                let run = &w[out * self.out_stride + (channels.start + start) * self.in_stride..];
                let (mut channel, mut index) = (start, 0);
                let len = per_run * self.plane;
                for col in (0..len).step_by(LANES) {
                    let cols = LANES.min(len - col);
                    let block = self.columns(lanes, &run[col..], rows, cols);
                    for &v in &block[..cols] {
                        if let Some(number) = number(index) {
                            let tap = number + channel * taps.cols().len();
                            store(lanes, to, (tap * vectors + vector) * LANES, v);
                        }
                        index += 1;
                        if index == self.plane {
                            (channel, index) = (channel + 1, 0);
                        }
                    }
                }
            }
        }
    }

    /// The next `cols` elements of the run for `rows` output channels, a vector for each element.
    #[inline(always)]
    fn columns<L: Lanes>(&self, lanes: L, run: &[f32], rows: usize, cols: usize) -> [L::V; LANES] {
        if self.out_stride > 1 || rows == 1 {
            return Signals { count: rows, stride: self.out_stride }.gather(lanes, run, cols);
        }
        // Output channels lie side by side (1x1, backward data): one element of each is the vector already.
        let run = &run[..rows];
        let mut block = [lanes.zero(); LANES];
        // SAFETY: `run` has `rows` elements.
        block[0] = unsafe { lanes.load_partial(run.as_ptr(), rows) };
        block
    }
}
