//! Copying, adding, the strided copies behind Concat, Slice and Split, and the same blob in another format.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use tensor::{Accumulate, AxisOrder, Device, TensorType, View, ViewMut};

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
pub fn copy(device: &Device, x: View<'_>, y: ViewMut<'_>, accumulate: Accumulate) {
    assert_eq!(x.len(), y.len(), "a copy has the length of its source");
    let len = x.len();
    copy_rows(device, &Rows { rows: 1, width: len, strides: [len; 2], offsets: [0; 2] }, x, y, accumulate);
}

/// Writes (or adds) `x`, dense rows of `columns.width`, into its block of columns of `y` (Concat forward, Slice backward).
///
/// # Panics
/// If a length does not match `columns`.
pub fn into_columns(device: &Device, columns: &Columns, x: View<'_>, y: ViewMut<'_>, accumulate: Accumulate) {
    columns.check(x.len(), y.len());
    let &Columns { rows, stride, offset, width } = columns;
    let rows = Rows { rows, width, strides: [width, stride], offsets: [0, offset] };
    copy_rows(device, &rows, x, y, accumulate);
}

/// Reads (or adds) a block of columns of `dy` into the dense rows `dx` (Concat backward, Slice forward).
///
/// # Panics
/// If a length does not match `columns`.
pub fn from_columns(
    device: &Device,
    columns: &Columns,
    dy: View<'_>,
    dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    columns.check(dx.len(), dy.len());
    let &Columns { rows, stride, offset, width } = columns;
    let rows = Rows { rows, width, strides: [stride, width], offsets: [offset, 0] };
    copy_rows(device, &rows, dy, dx, accumulate);
}

/// `y = x`, or `y += x`, where both are blobs of these extents, each in the format that its view is tagged with. Only a GPU
/// has others than [`Format::F32`](tensor::Format).
///
/// # Panics
/// If a length does not match the extents.
pub fn convert(device: &Device, dims: &[usize], x: View<'_>, y: ViewMut<'_>, accumulate: Accumulate) {
    let blob = TensorType::f32(dims);
    assert_eq!((x.len(), y.len()), (blob.count(), blob.count()), "lengths of a blob of {blob}");
    let [from, to] = [x.format(), y.format()].map(|format| blob.in_format(format).format().layout);
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
            let rows = Rows { rows: 1, width: x.len(), strides: [x.len(); 2], offsets: [0; 2] };
            assert_eq!(from, to, "the processor knows one order");
            cpu::copy_rows(cpu, &rows, x, y, accumulate);
        }
        Device::Cuda(cuda) => {
            let [rows, columns] = rows_and_columns;
            cuda::convert(cuda, [outer, rows, columns], x, y, accumulate);
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

fn copy_rows(device: &Device, rows: &Rows, x: View<'_>, y: ViewMut<'_>, accumulate: Accumulate) {
    if rows.rows * rows.width > 0 {
        on_device!(device, copy_rows(rows, x, y, accumulate));
    }
}
