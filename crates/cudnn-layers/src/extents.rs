//! A blob seen from one of its axes.

use std::ops::Range;
use tensor::{AxisOrder, TensorType};

/// A blob as `outer x axis x inner` elements in the order of memory. For images: samples, channels, pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AxisExtents {
    /// The product of the extents before the axis.
    pub outer: usize,
    /// The extent of the axis itself.
    pub axis: usize,
    /// The product of the extents after the axis.
    pub inner: usize,
}

impl AxisExtents {
    /// A blob seen from its axis number `axis`.
    pub fn new(blob: &TensorType, axis: usize) -> Self {
        let (outer, inner) = (blob.count_before(axis), blob.count_from(axis + 1));
        let (outer, inner) = match (blob.format().layout, axis) {
            (AxisOrder::Nhwc, 1) => (outer * inner, 1),
            (AxisOrder::Nhwc, 2..) => (outer / blob.c().max(1), inner * blob.c()),
            (AxisOrder::Nchw, _) | (AxisOrder::Nhwc, 0) => (outer, inner),
        };
        Self { outer, axis: blob.dim(axis), inner }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.outer * self.axis * self.inner
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements that share one index of the axis.
    pub fn per_index(&self) -> usize {
        self.outer * self.inner
    }

    /// The elements of one sample's plane of a channel.
    #[inline(always)]
    pub(crate) fn plane(&self, outer: usize, index: usize) -> Range<usize> {
        let start = (outer * self.axis + index) * self.inner;
        start..start + self.inner
    }
}
