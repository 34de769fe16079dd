//! What is transformed, multiplied and transformed back for each operation, and where it lies in the workspace.
//!
//! Every operation is a circular convolution of tiles. Where it is a correlation, one operand is read backwards, so
//! that the same product and the same cut serve all three.

use super::{bins::BIN, product::ProductAxis};
use crate::conv::ConvOp;
use std::ops::Range;
use tensor::ConvGeometry;

/// Largest part of a product that one task holds, so that it stays in the second-level cache: rows, terms (of a product
/// with filters), and vectors of sixteen columns.
pub(super) const ROWS: usize = 64;
pub(super) const TERMS: usize = 64;
pub(super) const VECTORS: usize = 2;

/// The tiles of one operand or result that is a stack of images.
#[derive(Clone, Copy, Debug)]
pub(super) struct Images {
    /// Channels of one group.
    pub(super) channels: usize,
    /// Height and width.
    pub(super) image: [usize; 2],
    /// Row and column of the image at which the first tile starts; may lie in the padding.
    pub(super) start: [isize; 2],
    /// Rows and columns that a tile takes from the image.
    pub(super) extent: [usize; 2],
    /// Whether tiles are read backwards, in both directions.
    pub(super) reversed: bool,
}

impl Images {
    /// Blocks of sixteen channels.
    pub(super) fn blocks(&self) -> usize {
        self.channels.div_ceil(16)
    }

    /// Where the tile at `corner` begins, on one axis.
    fn begin(&self, axis: usize, corner: usize) -> isize {
        self.start[axis] + corner as isize
    }

    /// What the tile at `corner` takes from the image: the rest of it is zero.
    pub(super) fn inside(&self, axis: usize, corner: usize) -> Range<usize> {
        let begin = self.begin(axis, corner);
        let [start, end] = [begin, begin + self.extent[axis] as isize]
            .map(|position| position.clamp(0, self.image[axis] as isize) as usize);
        start..end
    }

    /// Where in the tile at `corner` that part of the image lies.
    pub(super) fn position(&self, axis: usize, corner: usize, at: usize) -> usize {
        let forwards = (at as isize - self.begin(axis, corner)) as usize;
        if self.reversed { self.extent[axis] - 1 - forwards } else { forwards }
    }
}

/// The work of one call with tiles of `t` x `t`.
#[derive(Clone, Debug)]
pub(super) struct Tiling {
    pub(super) t: usize,
    pub(super) op: ConvOp,
    pub(super) geometry: ConvGeometry,
    /// Height and width of the images that are cut into tiles: the result's, where it is a stack of images.
    pub(super) domain: [usize; 2],
    /// Tiles of an image, vertically and horizontally.
    pub(super) tiles: [usize; 2],
    /// Distance between tiles.
    pub(super) step: [usize; 2],
    /// The left operand of the products.
    pub(super) left: Images,
    /// The right operand, if it is images. Of filters row spectra are stored, and columns transformed where they are
    /// used.
    pub(super) right: Option<Images>,
    /// Rows, terms and vectors of columns of the product of one group at one frequency.
    pub(super) extents: [usize; 3],
    /// Channels of one group of the result's fastest-varying kind: those in the lanes.
    pub(super) columns: usize,
    /// Position of the result in the transformed tile, and its extent.
    pub(super) first: [usize; 2],
    pub(super) result: [usize; 2],
}

impl Tiling {
    /// The tiling, or `None` where the algorithm does not apply: strides, dilations, filters larger than half a tile.
    pub(super) fn new(op: ConvOp, g: &ConvGeometry, t: usize) -> Option<Self> {
        let filter = [g.r, g.s];
        if g.stride != [1, 1] || g.dilation != [1, 1] || g.r.max(g.s) > t / 2 {
            return None;
        }
        let (x_image, y_image) = ([g.h, g.w], [g.out_h(), g.out_w()]);
        let domain = if op == ConvOp::BackwardData { x_image } else { y_image };
        let tiles = [0, 1].map(|axis| domain[axis].div_ceil(t + 1 - filter[axis]));
        let step = [0, 1].map(|axis| domain[axis].div_ceil(tiles[axis]));
        let halo = [0, 1].map(|axis| step[axis] + filter[axis] - 1);
        let x = Images {
            channels: g.c / g.groups,
            image: x_image,
            start: g.pad.map(|pad| -(pad as isize)),
            extent: halo,
            reversed: false,
        };
        let y = Images { channels: g.k / g.groups, image: y_image, ..x };
        let items = g.n * tiles[0] * tiles[1];
        let last = |extents: [usize; 2]| extents.map(|extent| extent - 1);
        let (left, right, rows, terms, columns, first, result) = match op {
            ConvOp::Forward => (x, None, items, x.channels, y.channels, last(filter), step),
            ConvOp::BackwardData => {
                let start = [0, 1].map(|axis| g.pad[axis] as isize - last(filter)[axis] as isize);
                (Images { start, ..y }, None, items, y.channels, x.channels, last(filter), step)
            }
            ConvOp::BackwardFilter => {
                let dy = Images { start: [0, 0], extent: step, reversed: true, ..y };
                (dy, Some(x), y.channels, items, x.channels, last(step), filter)
            }
        };
        let extents = [rows, terms, columns.div_ceil(16)];
        Some(Self { t, op, geometry: *g, domain, tiles, step, left, right, extents, columns, first, result })
    }

    /// What the result is to be multiplied with, for the transforms do not normalise.
    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.t * self.t) as f32
    }

    /// Columns of a spectrum that are stored: the others follow from them, as the tiles are real.
    pub(super) fn half(&self) -> usize {
        self.t / 2
    }

    /// Tiles of one image.
    pub(super) fn tiles_of_image(&self) -> usize {
        self.tiles[0] * self.tiles[1]
    }

    /// Where the results of tile `tile` of an image begin.
    pub(super) fn corner(&self, tile: usize) -> [usize; 2] {
        [tile / self.tiles[1] * self.step[0], tile % self.tiles[1] * self.step[1]]
    }

    /// Floats of one frequency of the spectra of all tiles of a group. An odd number of [`BIN`]s: neighbouring
    /// frequencies of a tile must not all fall into the same few sets of a cache.
    pub(super) fn plane(&self, images: &Images) -> usize {
        ((self.geometry.n * self.tiles_of_image() * images.blocks()) | 1) * BIN
    }

    /// Where the rows and the terms of a product lie in the spectra of the left operand: tiles follow each other with
    /// all their channels, and the backward pass of the filter sums over the tiles.
    pub(super) fn left_axes(&self) -> [ProductAxis; 2] {
        let tiles = ProductAxis::every(self.left.blocks() * BIN);
        match self.right {
            None => [tiles, ProductAxis::CHANNELS],
            Some(_) => [ProductAxis::CHANNELS, tiles],
        }
    }

    /// Lengths of the spectra of the right operand, of the left operand, and the row spectra of the result, one after
    /// the other.
    pub(super) fn regions(&self) -> [usize; 3] {
        let ([rows, terms, vectors], columns) = (self.extents, self.geometry.groups * self.half());
        // `[group][column][row of the spectrum]` planes of `[tile][block]` bins.
        let images_len = |images: &Images| columns * self.t * self.plane(images);
        let right = match &self.right {
            // `[group][column][vector][term][filter row]` bins.
            None => columns * vectors * terms * self.geometry.r * BIN,
            Some(images) => images_len(images),
        };
        // `[group][row of the product][vector][column][result row]` bins.
        let result = columns * rows * vectors * self.result[0] * BIN;
        [right, images_len(&self.left), result]
    }

    /// Floats between the filters' spectra of neighbouring frequencies in a task's scratch, and between those of the
    /// product.
    pub(super) fn scratch_strides(&self) -> [usize; 2] {
        let [rows, terms, vectors] = self.extents;
        let vectors = vectors.min(VECTORS);
        let filters = if self.right.is_none() { (terms.min(TERMS) * vectors) | 1 } else { 0 };
        [filters * BIN, ((rows.min(ROWS) * vectors) | 1) * BIN]
    }

    /// Floats of scratch that a thread needs: the most of any stage. A filter's taps take a quarter of a tile at most.
    pub(super) fn scratch_len(&self) -> usize {
        let multiply = self.scratch_strides().iter().sum::<usize>() * self.t;
        multiply.max(self.half() * self.column_stride())
    }

    /// Floats between the columns of a tile of which the rows are transformed (odd in [`BIN`]s, see [`Tiling::plane`]).
    pub(super) fn column_stride(&self) -> usize {
        (self.t + 1) * BIN
    }
}
