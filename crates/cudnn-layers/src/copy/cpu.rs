//! Copies on the CPU.

use super::Columns;
use crate::cpu_loops::{TASK_LEN, for_each_run, inlined, items_per_task};
use tensor::{Accumulate, Cpu, Out, View};

pub(super) fn copy_columns(cpu: &Cpu, [from, to]: [&Columns; 2], x: View<'_>, y: Out<'_>) {
    let (x, (y, accumulate)) = (x.host::<f32>(), y.into_host());
    let width = from.width;
    if [from.stride, to.stride] == [width; 2] {
        return inlined!(for_each_run(cpu, y.len(), TASK_LEN, [y]), |range, [y]| {
            copy(&x[range], y, accumulate)
        });
    }
    inlined!(for_each_run(cpu, from.rows, items_per_task(width), [y]), |range, [y]| {
        let x = &x[range.start * from.stride..];
        for (x, y) in x.chunks_exact(from.stride).zip(y.chunks_exact_mut(to.stride)) {
            copy(&x[from.offset..][..width], &mut y[to.offset..][..width], accumulate);
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
