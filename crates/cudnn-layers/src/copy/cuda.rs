//! Copies on the GPU.

use super::Columns;
use crate::cuda_launches::{Divisor, add, launch, of_type, sources, tiles};
use bytemuck::{Pod, Zeroable};
use tensor::{Out, View, cuda::Cuda};

sources!("copy.cu");

/// `Rows` of `copy.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Rows {
    len: u64,
    strides: [u64; 2],
    width: Divisor,
}

pub(super) fn copy_columns(cuda: &Cuda, [from, to]: [&Columns; 2], x: View<'_>, y: Out<'_>) {
    let (Out { to: mut y, accumulate }, len) = (y, from.rows * from.width);
    let strides = [from, to].map(|columns| columns.stride as u64);
    let rows = Rows { len: len as u64, strides, width: Divisor::new(from.width, len) };
    let (x, y) = (x.slice(from.offset..x.len()), y.slice(to.offset..y.len()));
    let (place, from, to) = (of_type(&[Some(x), Some(y.as_view())]), x.numbers(), y.numbers());
    // SAFETY: `copy_rows(Rows rows, const real* x, real* y, int add)`; the contract has checked both lengths.
    unsafe { launch!(cuda, place, "copy_rows", tiles(len), [&rows, from, to, add(accumulate)]) };
}

/// `Transposed` of `copy.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Transposed {
    outer: u64,
    rows: Divisor,
    columns: Divisor,
}

pub(super) fn convert(cuda: &Cuda, [outer, rows, columns]: [usize; 3], x: View<'_>, y: Out<'_>) {
    let (len, add) = (y.to.len(), add(y.accumulate));
    let [by_rows, by_columns] = [rows, columns].map(|extent| Divisor::new(extent, len));
    let places = Transposed { outer: outer as u64, rows: by_rows, columns: by_columns };
    let [from, to] = [x, y.to.as_view()].map(|blob| of_type(&[Some(blob)]));
    let function = match from == to {
        true => "transpose_blob",
        false if from < to => "from_floats",
        false => "to_floats",
    };
    let (place, from, to) = (from.max(to), x.numbers(), y.to.numbers());
    // SAFETY: `function(Transposed places, const float* or real* x, real* or float* y, int add)` of the types that the
    // views have; the contract has checked both lengths.
    unsafe { launch!(cuda, place, function, tiles(len), [&places, from, to, add]) };
}
