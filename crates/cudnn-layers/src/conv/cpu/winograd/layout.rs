//! Memory layout of images and their tiles, and of the matrices of every frequency.

use super::minimal::{A, M};
use crate::conv::ConvOp;
use crate::conv::cpu::{axis::part, planes::Signals};
use std::ops::Range;
use tensor::{ConvGeometry, cpu::LANES};

/// Blocks of the widest panel of output channels: the width of a register tile of the product on AVX-512.
pub(super) const PANEL: usize = 3;
/// Input channels whose filters are transformed together.
pub(super) const CHANNELS: usize = 16;
/// Input channels of a slice of the filters, which with a panel of output channels stays in a thread's caches.
pub(super) const SLICE: usize = 64;

/// The images of one operand: `channels` channels of `h x w` pixels for each group of each sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Images {
    pub(super) channels: usize,
    pub(super) h: usize,
    pub(super) w: usize,
}

impl Images {
    /// Blocks of sixteen channels of a group, the last perhaps partly filled.
    pub(super) fn blocks(&self) -> usize {
        self.channels.div_ceil(LANES)
    }

    /// Rows `rows` of a block of channels of one group of all samples': their first element, the channels, and how many
    /// elements each has.
    pub(super) fn planes(&self, group: usize, block: usize, rows: &Range<usize>) -> (usize, Signals, usize) {
        let channel = group * self.channels + block * LANES;
        let signals = Signals { count: (self.channels - block * LANES).min(LANES), stride: self.h * self.w };
        ((channel * self.h + rows.start) * self.w, signals, rows.len() * self.w)
    }
}

/// A correlation of `n` samples with filters of 3 x 3, and the tiles of `M x M` outputs that cover it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Problem {
    pub(super) n: usize,
    pub(super) groups: usize,
    pub(super) input: Images,
    pub(super) output: Images,
    pub(super) pad: [usize; 2],
}

impl Problem {
    /// The pass `op` of `g`, for backward filter the forward pass that it differentiates, or `None` where Winograd's
    /// method does not apply. Backward data is a correlation of `dy` with the rotated filters; a padding of more than 2
    /// would have to crop instead, which is not built.
    pub(super) fn new(op: ConvOp, g: &ConvGeometry) -> Option<Self> {
        let applies = [g.r, g.s] == [3, 3] && g.stride == [1, 1] && g.dilation == [1, 1];
        let x = Images { channels: g.c / g.groups, h: g.h, w: g.w };
        let y = applies.then(|| Images { channels: g.k / g.groups, h: g.out_h(), w: g.out_w() })?;
        let (input, output, pad) = match op {
            ConvOp::BackwardData => (y, x, [2usize.checked_sub(g.pad[0])?, 2usize.checked_sub(g.pad[1])?]),
            _ => (x, y, g.pad),
        };
        Some(Self { n: g.n, groups: g.groups, input, output, pad })
    }

    /// Rows of tiles of one image.
    pub(super) fn rows_per_image(&self) -> usize {
        self.output.h.div_ceil(M)
    }

    /// Rows of tiles of all images.
    pub(super) fn rows(&self) -> usize {
        self.n * self.rows_per_image()
    }

    /// Tiles of a row.
    pub(super) fn cols(&self) -> usize {
        self.output.w.div_ceil(M)
    }

    /// Cuts a range of all rows of tiles at the borders of images, of which each has such a `group`.
    pub(super) fn segments(&self, group: usize, rows: Range<usize>) -> impl Iterator<Item = Segment> {
        let (per_image, groups) = (self.rows_per_image(), self.groups);
        let mut next = rows.start;
        std::iter::from_fn(move || {
            let (sample, start) = (next / per_image, next % per_image);
            let len = (rows.end - next).min(per_image - start);
            let group = sample * groups + group;
            let segment = Segment { group, rows: start..start + len, first: next - rows.start };
            next += len;
            (len > 0).then_some(segment)
        })
    }
}

/// Rows of tiles of one image.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// The number of the group among those of all samples.
    pub(super) group: usize,
    /// Rows of tiles within the image.
    pub(super) rows: Range<usize>,
    /// The first of them, counted from the start of the range that was cut.
    pub(super) first: usize,
}

/// A matrix of `rows x (16 * blocks)` for each of the `A x A` frequencies, cut into panels of columns: element order is
/// `[frequency][panel][row][column of the panel]`, so that a product reads a panel from end to end.
///
/// Rows are tiles or channels, columns are channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spectrum {
    pub(super) rows: usize,
    pub(super) blocks: usize,
    /// Blocks of the widest panel; panels differ by at most one block.
    pub(super) widest: usize,
}

impl Spectrum {
    /// Distance between frequencies. One cache line more than needed: powers of two would map all frequencies of an
    /// element to the same lines of the cache.
    fn stride(&self) -> usize {
        (self.rows * self.blocks + 1) * LANES
    }

    pub(super) fn len(&self) -> usize {
        A * A * self.stride()
    }

    pub(super) fn panels(&self) -> usize {
        self.blocks.div_ceil(self.widest)
    }

    /// The blocks of a panel.
    pub(super) fn panel_blocks(&self, panel: usize) -> Range<usize> {
        part(self.blocks, self.panels(), panel)
    }

    /// Columns of a panel.
    pub(super) fn width(&self, panel: usize) -> usize {
        self.panel_blocks(panel).len() * LANES
    }

    /// Where `rows` of a panel lie.
    pub(super) fn range(&self, frequency: usize, panel: usize, rows: Range<usize>) -> Range<usize> {
        let width = self.width(panel);
        let start = frequency * self.stride() + self.rows * self.panel_blocks(panel).start * LANES;
        start + rows.start * width..start + rows.end * width
    }
}

/// A slice of the filters of `blocks` blocks of output channels, or its gradients.
pub(super) fn slice_layout(inputs: usize, blocks: usize) -> Spectrum {
    Spectrum { rows: SLICE.min(inputs), blocks, widest: PANEL }
}

/// The channels, of `inputs` in all, that some blocks hold.
pub(super) fn slice_channels(blocks: Range<usize>, inputs: usize) -> Range<usize> {
    blocks.start * LANES..(blocks.end * LANES).min(inputs)
}

/// Runs of [`CHANNELS`] channels of a slice, each with its first row in the slice's layout.
pub(super) fn slice_rows(slice: &Range<usize>) -> impl Iterator<Item = (Range<usize>, usize)> + use<> {
    let (start, end) = (slice.start, slice.end);
    (start..end).step_by(CHANNELS).map(move |first| (first..(first + CHANNELS).min(end), first - start))
}
