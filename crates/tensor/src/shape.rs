//! The extents of a blob.

use std::fmt;

/// The extents of an N-dimensional blob in row-major order, outermost first. Images are `N, C, H, W`.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A shape of the given extents; an empty list is a scalar.
    pub fn new(dims: &[usize]) -> Self {
        Self(dims.to_vec())
    }

    /// The extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The number of elements (1 for a scalar).
    pub fn count(&self) -> usize {
        self.0.iter().product()
    }

    /// The product of the extents from `axis` on (1 past the last axis).
    pub fn count_from(&self, axis: usize) -> usize {
        self.0[axis.min(self.0.len())..].iter().product()
    }

    /// The product of the extents before `axis`.
    pub fn count_before(&self, axis: usize) -> usize {
        self.0[..axis.min(self.0.len())].iter().product()
    }

    /// The extent of `axis`, or 1 past the last axis, so that a matrix reads as an image of 1x1 pixels.
    pub fn dim(&self, axis: usize) -> usize {
        self.0.get(axis).copied().unwrap_or(1)
    }

    /// The mini-batch: the outermost extent.
    pub fn n(&self) -> usize {
        self.dim(0)
    }

    /// Channels: the extent of axis 1.
    pub fn c(&self) -> usize {
        self.dim(1)
    }

    /// Height: the extent of axis 2.
    pub fn h(&self) -> usize {
        self.dim(2)
    }

    /// Width: the extent of axis 3.
    pub fn w(&self) -> usize {
        self.dim(3)
    }

    /// Pixels per channel: everything from axis 2 on.
    pub fn spatial(&self) -> usize {
        self.count_from(2)
    }

    /// Turns Caffe's axis, negative from the end, into an index. `None` when the shape has no such axis.
    pub fn axis(&self, axis: i64) -> Option<usize> {
        let rank = self.0.len() as i64;
        let index = if axis < 0 { axis + rank } else { axis };
        (0..rank).contains(&index).then_some(index as usize)
    }
}

/// Caffe's form: the extents and, in brackets, the number of elements.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for dim in &self.0 {
            write!(f, "{dim} ")?;
        }
        write!(f, "({})", self.count())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_axes() {
        let shape = Shape::new(&[2, 3, 4, 5]);
        assert_eq!((shape.count(), shape.count_from(2), shape.count_before(2)), (120, 20, 6));
        assert_eq!(
            (shape.axis(1), shape.axis(-1), shape.axis(4), shape.axis(-5)),
            (Some(1), Some(3), None, None)
        );
        assert_eq!(shape.to_string(), "2 3 4 5 (120)");
    }

    #[test]
    fn a_matrix_is_an_image_of_one_pixel() {
        let matrix = Shape::new(&[32, 10]);
        assert_eq!((matrix.n(), matrix.c(), matrix.h(), matrix.w(), matrix.spatial()), (32, 10, 1, 1, 1));
        assert_eq!(Shape::new(&[]).count(), 1);
    }
}
