//! Copies on the GPU.

use super::Rows;
use crate::cuda_launches::{Divisor, add, launch, source, tiles};
use bytemuck::{Pod, Zeroable};
use tensor::{Accumulate, View, ViewMut, cuda::Cuda};

source!("copy.cu");

/// `Rows` of `copy.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct DeviceRows {
    len: u64,
    strides: [u64; 2],
    width: Divisor,
}

pub(super) fn copy_rows(cuda: &Cuda, rows: &Rows, x: View<'_>, mut y: ViewMut<'_>, accumulate: Accumulate) {
    let &Rows { rows, width, strides, offsets: [from, to] } = rows;
    let (len, strides) = (rows * width, strides.map(|stride| stride as u64));
    let rows = DeviceRows { len: len as u64, strides, width: Divisor::new(width, len) };
    let (x, mut y) = (x.slice(from..x.len()), y.slice(to..y.len()));
    // SAFETY: `copy_rows(Rows rows, const float* x, float* y, int add)`; the contract has checked both lengths.
    unsafe { launch!(cuda, "copy_rows", tiles(len), [&rows, x, &mut y, add(accumulate)]) };
}
