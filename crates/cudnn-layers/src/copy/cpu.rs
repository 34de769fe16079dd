//! Copies on the CPU.

use super::Rows;
use crate::cpu_loops::{for_each_element_run, for_each_run, inlined, items_per_task};
use tensor::{Accumulate, Cpu, Out, View};

pub(super) fn copy_rows(cpu: &Cpu, rows: &Rows, x: View<'_>, y: Out<'_>) {
    let (x, (y, accumulate)) = (x.host::<f32>(), y.into_host());
    let &Rows { rows, width, strides: [x_stride, y_stride], offsets: [x_offset, y_offset] } = rows;
    if [x_stride, y_stride] == [width; 2] {
        return inlined!(for_each_element_run(cpu, [y]), |range, [y]| copy(&x[range], y, accumulate));
    }
    inlined!(for_each_run(cpu, rows, items_per_task(width), [y]), |range, [y]| {
        let x = &x[range.start * x_stride..];
        for (x, y) in x.chunks_exact(x_stride).zip(y.chunks_exact_mut(y_stride)) {
            copy(&x[x_offset..][..width], &mut y[y_offset..][..width], accumulate);
        }
    });
}

#[inline(always)]
fn copy(x: &[f32], y: &mut [f32], accumulate: Accumulate) {
    match accumulate {
        Accumulate::Replace => y.copy_from_slice(x),
        Accumulate::Add => y.iter_mut().zip(x).for_each(|(y, &x)| *y += x),
    }
}
