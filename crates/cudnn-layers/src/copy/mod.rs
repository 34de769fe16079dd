//! Copying, adding, filling, and the strided copies behind Concat, Slice and Split.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use tensor::{Accumulate, Device, View, ViewMut};

/// A block of columns of a row-major matrix: how one operand of a Concat lies in the result. For a Concat along
/// `axis`, rows are the elements before the axis and a column is one element from the axis on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Rows of the matrix.
    pub rows: usize,
    /// Columns of the matrix.
    pub stride: usize,
    /// First column of the block.
    pub offset: usize,
    /// Columns of the block.
    pub width: usize,
}

impl Columns {
    fn check(&self, block: usize, matrix: usize) {
        assert!(self.offset + self.width <= self.stride, "{self:?} do not fit the matrix");
        assert_eq!(
            (block, matrix),
            (self.rows * self.width, self.rows * self.stride),
            "lengths of block and matrix"
        );
    }
}

/// `y = x`, or `y += x`: the gradient of every copy.
///
/// # Panics
/// If lengths differ.
pub fn copy(device: &Device, x: View<'_>, mut y: ViewMut<'_>, accumulate: Accumulate) {
    assert_eq!(x.len(), y.len(), "a copy has the length of its source");
    match device {
        Device::Cpu(cpu) => cpu::copy(cpu, x.host(), y.host(), accumulate),
        Device::Cuda(cuda) => cuda::copy(cuda, x, y, accumulate),
    }
}

/// Every element of `y` becomes `value`.
pub fn fill(device: &Device, value: f32, mut y: ViewMut<'_>) {
    match device {
        Device::Cpu(cpu) => cpu::fill(cpu, value, y.host()),
        Device::Cuda(cuda) => cuda::fill(cuda, value, y),
    }
}

/// Writes `x`, dense rows of `columns.width`, into its block of columns of `y` (Concat forward).
///
/// # Panics
/// If a length does not match `columns`.
pub fn into_columns(device: &Device, columns: &Columns, x: View<'_>, mut y: ViewMut<'_>) {
    columns.check(x.len(), y.len());
    match device {
        Device::Cpu(cpu) => cpu::into_columns(cpu, columns, x.host(), y.host()),
        Device::Cuda(cuda) => cuda::into_columns(cuda, columns, x, y),
    }
}

/// Reads (or adds) a block of columns of `dy` into the dense rows `dx` (Concat backward, Slice forward).
///
/// # Panics
/// If a length does not match `columns`.
pub fn from_columns(
    device: &Device,
    columns: &Columns,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    columns.check(dx.len(), dy.len());
    match device {
        Device::Cpu(cpu) => cpu::from_columns(cpu, columns, dy.host(), dx.host(), accumulate),
        Device::Cuda(cuda) => cuda::from_columns(cuda, columns, dy, dx, accumulate),
    }
}
