//! Copies on the GPU.

use super::Columns;
use crate::cuda_launches::{Divisor, add, launch_tiles};
use bytemuck::{Pod, Zeroable};
use tensor::{
    Accumulate, View, ViewMut,
    cuda::{Arg, Cuda, Source},
};

static SOURCE: Source =
    Source { name: "copy.cu", text: concat!(include_str!("../common.cuh"), include_str!("copy.cu")) };

pub(super) fn copy(cuda: &Cuda, x: View<'_>, mut y: ViewMut<'_>, accumulate: Accumulate) {
    let len = y.len();
    let args = [x.into(), (&mut y).into(), add(accumulate).into(), len.into()];
    // SAFETY: `copy(const float* x, float* y, int add, u64 len)`; the contract has checked the lengths.
    unsafe { launch_tiles(cuda, &SOURCE, "copy", len, &args) };
}

pub(super) fn fill(cuda: &Cuda, value: f32, mut y: ViewMut<'_>) {
    let len = y.len();
    // SAFETY: `fill(float value, float* y, u64 len)`, and `len` is that of `y`.
    unsafe { launch_tiles(cuda, &SOURCE, "fill", len, &[value.into(), (&mut y).into(), len.into()]) };
}

/// `Columns` of `copy.cu`.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct DeviceColumns {
    rows: u64,
    stride: u64,
    offset: u64,
    width: Divisor,
}

impl DeviceColumns {
    fn new(columns: &Columns) -> Self {
        let &Columns { rows, stride, offset, width } = columns;
        let [rows_u64, stride, offset] = [rows, stride, offset].map(|extent| extent as u64);
        Self { rows: rows_u64, stride, offset, width: Divisor::new(width, rows * width) }
    }

    fn arg(&self) -> Arg<'_> {
        Arg::Bytes(bytemuck::bytes_of(self))
    }
}

pub(super) fn into_columns(cuda: &Cuda, columns: &Columns, x: View<'_>, mut y: ViewMut<'_>) {
    let len = x.len();
    let columns = DeviceColumns::new(columns);
    // SAFETY: `into_columns(Columns columns, const float* x, float* y)`; the contract has checked both lengths.
    unsafe {
        launch_tiles(cuda, &SOURCE, "into_columns", len, &[columns.arg(), x.into(), (&mut y).into()]);
    }
}

pub(super) fn from_columns(
    cuda: &Cuda,
    columns: &Columns,
    dy: View<'_>,
    mut dx: ViewMut<'_>,
    accumulate: Accumulate,
) {
    let len = dx.len();
    let columns = DeviceColumns::new(columns);
    let args = [columns.arg(), dy.into(), (&mut dx).into(), add(accumulate).into()];
    // SAFETY: `from_columns(Columns columns, const float* dy, float* dx, int add)`; the contract has checked both lengths.
    unsafe { launch_tiles(cuda, &SOURCE, "from_columns", len, &args) };
}
