//! Copies on the GPU.

use super::Columns;
use crate::cuda_launches::{Divisor, add, launch, of_type, sources, tiles};
use tensor::{Out, View, cuda::Cuda};

sources!("copy.cu");

pub(super) fn copy_columns(cuda: &Cuda, [from, to]: [&Columns; 2], x: View<'_>, y: Out<'_>) {
    let (Out { to: mut y, accumulate }, len) = (y, from.rows * from.width);
    let (strides, width) = ([from.stride, to.stride], Divisor::new(from.width, len));
    let (x, y) = (x.slice(from.offset..x.len()), y.slice(to.offset..y.len()));
    let (place, from, to) = (of_type(&[Some(x), Some(y.as_view())]), x.numbers(), y.numbers());
    let (grid, add) = (tiles(len), add(accumulate));
    // SAFETY: `copy_rows(u64 len, u64 from_stride, u64 to_stride, Divisor width, const real* x, real* y, int add)`; the
    // contract has checked both lengths.
    unsafe { launch!(cuda, place, "copy_rows", grid, [len, strides[0], strides[1], width, from, to, add]) };
}

/// As `rows x columns` elements of each sample, which are transposed.
pub(super) fn convert(cuda: &Cuda, extents: [usize; 2], x: View<'_>, y: Out<'_>) {
    let (len, add) = (y.to.len(), add(y.accumulate));
    let [rows, columns] = extents.map(|extent| Divisor::new(extent, len));
    let [from, to] = [x, y.to.as_view()].map(|blob| of_type(&[Some(blob)]));
    let function = match from == to {
        true => "transpose_blob",
        false if from < to => "from_floats",
        false => "to_floats",
    };
    let (place, from, to) = (from.max(to), x.numbers(), y.to.numbers());
    // SAFETY: `function(u64 len, Divisor rows, Divisor columns, const float* or real* x, real* or float* y, int add)`
    // of the types that the views have; the contract has checked both lengths.
    unsafe { launch!(cuda, place, function, tiles(len), [len, rows, columns, from, to, add]) };
}
