//! Copying, adding, the strided copies behind Concat, Slice and Split, and the same blob in another format.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use tensor::{AxisOrder, Device, Out, TensorType, View};

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
    /// Rows that lie one behind the other.
    fn dense(rows: usize, width: usize) -> Self {
        Self { rows, stride: width, offset: 0, width }
    }
}

/// `y = x`, or `y += x`: the gradient of every copy.
pub fn copy(device: &Device, x: View<'_>, y: Out<'_>) {
    copy_columns(device, [&Columns::dense(1, x.len()); 2], x, y);
}

/// Writes (or adds) `x`, dense rows of `columns.width`, into its block of columns of `y` (Concat forward, Slice
/// backward).
pub fn into_columns(device: &Device, columns: &Columns, x: View<'_>, y: Out<'_>) {
    copy_columns(device, [&Columns::dense(columns.rows, columns.width), columns], x, y);
}

/// Reads (or adds) a block of columns of `dy` into the dense rows `dx` (Concat backward, Slice forward).
pub fn from_columns(device: &Device, columns: &Columns, dy: View<'_>, dx: Out<'_>) {
    copy_columns(device, [columns, &Columns::dense(columns.rows, columns.width)], dy, dx);
}

/// `y = x`, or `y += x`, where both are blobs of these extents, each in the format that its view is tagged with. Only a
/// GPU has others than [`Format::F32`](tensor::Format).
pub fn convert(device: &Device, dims: &[usize], x: View<'_>, y: Out<'_>) {
    if x.format() == y.to.format() {
        return copy(device, x, y);
    }
    let blob = TensorType::f32(dims);
    assert_eq!([x.len(), y.to.len()], [blob.count(); 2], "lengths of a blob of {blob}");
    let [from, to] = [x.format(), y.to.format()].map(|format| blob.in_format(format).format().layout);
    let (channels, pixels) = (blob.c(), blob.spatial());
    let [rows, columns] = match (from, to) {
        (AxisOrder::Nchw, AxisOrder::Nhwc) => [channels, pixels],
        (AxisOrder::Nhwc, AxisOrder::Nchw) => [pixels, channels],
        _ => [channels * pixels, 1],
    };
    match device {
        Device::Cpu(_) => panic!("the processor knows one format"),
        Device::Cuda(cuda) => cuda::convert(cuda, [rows, columns], x, y),
    }
}

/// Copies some columns of `x` into as many of `y`, which are both matrices.
fn copy_columns(device: &Device, [from, to]: [&Columns; 2], x: View<'_>, y: Out<'_>) {
    for (columns, len) in [(from, x.len()), (to, y.to.len())] {
        assert!(columns.offset + columns.width <= columns.stride, "{columns:?} do not fit the matrix");
        assert_eq!(len, columns.rows * columns.stride, "length of a matrix of {columns:?}");
    }
    if from.rows * from.width > 0 {
        on_device!(device, copy_columns([from, to], x, y));
    }
}
