//! What a blob is.

use crate::{AxisOrder, Format, Space};
use std::fmt;

/// The extents of an N-dimensional blob, outermost first, and what its elements are. Images are `N, C, H, W`.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct TensorType {
    dims: Vec<usize>,
    format: Format,
}

impl TensorType {
    /// The given extents in this format; an empty list is a scalar. Where elements lie alike in both orders, as of a
    /// single channel or pixel, the order is NCHW.
    pub fn new(dims: &[usize], format: Format) -> Self {
        let mut new = Self { dims: dims.to_vec(), format };
        if new.c() == 1 || new.spatial() == 1 {
            new.format.layout = AxisOrder::Nchw;
        }
        new
    }

    /// The given extents in single precision and NCHW.
    pub fn f32(dims: &[usize]) -> Self {
        Self::new(dims, Format::F32)
    }

    /// Other extents, and the same elements.
    pub fn with_dims(&self, dims: &[usize]) -> Self {
        Self::new(dims, self.format)
    }

    /// The same extents in another format.
    pub fn in_format(&self, format: Format) -> Self {
        Self::new(&self.dims, format)
    }

    /// What the elements are.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The memory that it takes.
    pub fn space(&self) -> Space {
        Space::elements(self.format.dtype, self.count())
    }

    /// The extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The number of elements (1 for a scalar).
    pub fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// The product of the extents from `axis` on (1 past the last axis).
    pub fn count_from(&self, axis: usize) -> usize {
        self.dims[axis.min(self.rank())..].iter().product()
    }

    /// The product of the extents before `axis`.
    pub fn count_before(&self, axis: usize) -> usize {
        self.dims[..axis.min(self.rank())].iter().product()
    }

    /// The extent of `axis`, or 1 past the last axis, so that a matrix reads as an image of 1x1 pixels.
    pub fn dim(&self, axis: usize) -> usize {
        self.dims.get(axis).copied().unwrap_or(1)
    }

    /// The mini-batch: the outermost extent.
    pub fn n(&self) -> usize {
        self.dim(0)
    }

    /// Channels: the extent of axis 1.
    pub fn c(&self) -> usize {
        self.dim(1)
    }

    /// Pixels per channel: everything from axis 2 on.
    pub fn spatial(&self) -> usize {
        self.count_from(2)
    }

    /// Turns Caffe's axis, negative from the end, into an index. `None` when there is no such axis.
    pub fn axis(&self, axis: i64) -> Option<usize> {
        let rank = self.rank() as i64;
        let index = if axis < 0 { axis + rank } else { axis };
        (0..rank).contains(&index).then_some(index as usize)
    }
}

/// Caffe's form: the extents and, in brackets, the number of elements.
impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for dim in &self.dims {
            write!(f, "{dim} ")?;
        }
        write!(f, "({})", self.count())
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_axes() {
        let shape = TensorType::f32(&[2, 3, 4, 5]);
        assert_eq!((shape.count(), shape.count_from(2), shape.count_before(2)), (120, 20, 6));
        assert_eq!(
            (shape.axis(1), shape.axis(-1), shape.axis(4), shape.axis(-5)),
            (Some(1), Some(3), None, None)
        );
        assert_eq!(shape.to_string(), "2 3 4 5 (120)");
    }

    #[test]
    fn blobs_that_lie_alike_have_one_format() {
        let nhwc = Format::BF16.in_order(AxisOrder::Nhwc);
        for (dims, layout) in [
            (&[2, 3, 4, 5][..], AxisOrder::Nhwc),
            (&[2, 3, 4], AxisOrder::Nhwc),
            (&[2, 1, 4, 5], AxisOrder::Nchw),
            (&[2, 3, 1, 1], AxisOrder::Nchw),
            (&[2, 3], AxisOrder::Nchw),
            (&[], AxisOrder::Nchw),
        ] {
            let blob = TensorType::f32(dims).in_format(nhwc);
            assert_eq!(blob.format(), Format::BF16.in_order(layout), "{dims:?}");
            assert_eq!(blob.space().bytes(), 2 * blob.count());
        }
    }

    #[test]
    fn a_matrix_is_an_image_of_one_pixel() {
        let matrix = TensorType::f32(&[32, 10]);
        assert_eq!(
            (matrix.n(), matrix.c(), matrix.dim(2), matrix.dim(3), matrix.spatial()),
            (32, 10, 1, 1, 1)
        );
        assert_eq!(TensorType::f32(&[]).count(), 1);
    }
}
