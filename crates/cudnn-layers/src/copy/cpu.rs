//! Copies on the CPU.

use super::Columns;
use crate::cpu_loops::{for_each_element_run, for_each_run, items_per_task};
use tensor::{Accumulate, Cpu};

pub(super) fn copy(cpu: &Cpu, x: &[f32], y: &mut [f32], accumulate: Accumulate) {
    for_each_element_run(
        cpu,
        [y],
        #[inline(always)]
        |range, [y]| transfer(&x[range], y, accumulate),
    );
}

#[inline(always)]
fn transfer(x: &[f32], y: &mut [f32], accumulate: Accumulate) {
    match accumulate {
        Accumulate::Replace => y.copy_from_slice(x),
        Accumulate::Add => y.iter_mut().zip(x).for_each(|(y, &x)| *y += x),
    }
}

pub(super) fn fill(cpu: &Cpu, value: f32, y: &mut [f32]) {
    for_each_element_run(
        cpu,
        [y],
        #[inline(always)]
        |_, [y]| y.fill(value),
    );
}

pub(super) fn into_columns(cpu: &Cpu, columns: &Columns, x: &[f32], y: &mut [f32]) {
    let &Columns { rows, stride, offset, width } = columns;
    for_each_run(
        cpu,
        rows,
        items_per_task(width),
        [y],
        #[inline(always)]
        |range, [y]| {
            for (row, y) in range.zip(y.chunks_exact_mut(stride)) {
                y[offset..offset + width].copy_from_slice(&x[row * width..(row + 1) * width]);
            }
        },
    );
}

pub(super) fn from_columns(cpu: &Cpu, columns: &Columns, dy: &[f32], dx: &mut [f32], accumulate: Accumulate) {
    let &Columns { rows, stride, offset, width } = columns;
    if width == 0 {
        return;
    }
    for_each_run(
        cpu,
        rows,
        items_per_task(width),
        [dx],
        #[inline(always)]
        |range, [dx]| {
            for (row, dx) in range.zip(dx.chunks_exact_mut(width)) {
                let start = row * stride + offset;
                transfer(&dy[start..start + width], dx, accumulate);
            }
        },
    );
}
