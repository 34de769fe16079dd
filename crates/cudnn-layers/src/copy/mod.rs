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
    fn check(&self, block: usize, matrix: usize) {
        let &Self { rows, stride, offset, width } = self;
        assert!(offset + width <= stride, "{self:?} do not fit the matrix");
        assert_eq!((block, matrix), (rows * width, rows * stride), "lengths of block and matrix");
    }
}

/// `y = x`, or `y += x`: the gradient of every copy.
///
/// # Panics
/// If lengths differ.
pub fn copy(device: &Device, x: View<'_>, y: Out<'_>) {
    assert_eq!(x.len(), y.to.len(), "a copy has the length of its source");
    copy_rows(device, &Rows::all(x.len()), x, y);
}

/// Writes (or adds) `x`, dense rows of `columns.width`, into its block of columns of `y` (Concat forward, Slice
/// backward).
///
/// # Panics
/// If a length does not match `columns`.
pub fn into_columns(device: &Device, columns: &Columns, x: View<'_>, y: Out<'_>) {
    columns.check(x.len(), y.to.len());
    let &Columns { rows, stride, offset, width } = columns;
    let rows = Rows { rows, width, strides: [width, stride], offsets: [0, offset] };
    copy_rows(device, &rows, x, y);
}

/// Reads (or adds) a block of columns of `dy` into the dense rows `dx` (Concat backward, Slice forward).
///
/// # Panics
/// If a length does not match `columns`.
pub fn from_columns(device: &Device, columns: &Columns, dy: View<'_>, dx: Out<'_>) {
    columns.check(dx.to.len(), dy.len());
    let &Columns { rows, stride, offset, width } = columns;
    let rows = Rows { rows, width, strides: [stride, width], offsets: [offset, 0] };
    copy_rows(device, &rows, dy, dx);
}

/// `y = x`, or `y += x`, where both are blobs of these extents, each in the format that its view is tagged with. Only a
/// GPU has others than [`Format::F32`](tensor::Format).
///
/// # Panics
/// If a length does not match the extents.
pub fn convert(device: &Device, dims: &[usize], x: View<'_>, y: Out<'_>) {
    let blob = TensorType::f32(dims);
    assert_eq!([x.len(), y.to.len()], [blob.count(); 2], "lengths of a blob of {blob}");
    let [from, to] = [x.format(), y.to.format()].map(|format| blob.in_format(format).format().layout);
    let (outer, channels, pixels) = (blob.n(), blob.c(), blob.spatial());
    let rows_and_columns = match (from, to) {
        (AxisOrder::Nchw, AxisOrder::Nhwc) => [channels, pixels],
        (AxisOrder::Nhwc, AxisOrder::Nchw) => [pixels, channels],
        _ => [channels * pixels, 1],
    };
    if blob.count() == 0 {
        return;
    }
    match device {
        Device::Cpu(cpu) => {
            assert_eq!(from, to, "the processor knows one order");
            cpu::copy_rows(cpu, &Rows::all(x.len()), x, y);
        }
        Device::Cuda(cuda) => {
            let [rows, columns] = rows_and_columns;
            cuda::convert(cuda, [outer, rows, columns], x, y);
        }
    }
}

/// Rows of `width` elements, and how they lie in the source and in the destination.
struct Rows {
    rows: usize,
    width: usize,
    strides: [usize; 2],
    offsets: [usize; 2],
}

impl Rows {
    /// One row of so many elements.
    fn all(len: usize) -> Self {
        Self { rows: 1, width: len, strides: [len; 2], offsets: [0; 2] }
    }
}

fn copy_rows(device: &Device, rows: &Rows, x: View<'_>, y: Out<'_>) {
    if rows.rows * rows.width > 0 {
        on_device!(device, copy_rows(rows, x, y));
    }
}
