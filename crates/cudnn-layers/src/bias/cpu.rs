//! The bias on the CPU.

use crate::{
    AxisExtents,
    cpu_loops::{for_each_run, items_per_task, put, rectified},
    cpu_sums::{Itself, channel_sums},
};
use tensor::{Accumulate, Cpu};

pub(super) fn forward_in_place(cpu: &Cpu, extents: &AxisExtents, b: &[f32], relu: bool, y: &mut [f32]) {
    if extents.inner == 1 {
        return add_to_rows(cpu, b, relu, y);
    }
    for_each_run(
        cpu,
        extents.outer * extents.axis,
        items_per_task(extents.inner),
        [y],
        #[inline(always)]
        |planes, [y]| {
            for (plane, y) in planes.zip(y.chunks_exact_mut(extents.inner)) {
                let b = b[plane % b.len()];
                y.iter_mut().for_each(|y| *y = rectified(relu, *y + b));
            }
        },
    );
}

/// The outputs of an inner product: channels are neighbours.
fn add_to_rows(cpu: &Cpu, b: &[f32], relu: bool, y: &mut [f32]) {
    for_each_run(
        cpu,
        y.len() / b.len().max(1),
        items_per_task(b.len()),
        [y],
        #[inline(always)]
        |_, [y]| {
            for row in y.chunks_exact_mut(b.len()) {
                row.iter_mut().zip(b).for_each(|(y, &b)| *y = rectified(relu, *y + b));
            }
        },
    );
}

pub(super) fn backward(cpu: &Cpu, extents: &AxisExtents, dy: &[f32], db: &mut [f32], accumulate: Accumulate) {
    for_each_run(
        cpu,
        extents.axis,
        items_per_task(extents.per_index()),
        [db],
        #[inline(always)]
        |channels, [db]| {
            if extents.inner == 1 {
                return add_rows(&dy[channels.start..], extents, db, accumulate);
            }
            for (channel, db) in channels.zip(db) {
                let [total] = channel_sums(extents, channel, [dy], Itself);
                put(accumulate, db, total as f32);
            }
        },
    );
}

/// Sums rows of `extents.axis` elements, of which `dy` begins with the first wanted column, into `db`.
#[inline(always)]
fn add_rows(dy: &[f32], extents: &AxisExtents, db: &mut [f32], accumulate: Accumulate) {
    const COLUMNS: usize = 128;
    for (block, db) in db.chunks_mut(COLUMNS).enumerate() {
        let mut totals = [0.0f64; COLUMNS];
        for sample in 0..extents.outer {
            let start = sample * extents.axis + block * COLUMNS;
            let row = &dy[start..start + db.len()];
            totals.iter_mut().zip(row).for_each(|(total, &dy)| *total += f64::from(dy));
        }
        db.iter_mut().zip(totals).for_each(|(db, total)| put(accumulate, db, total as f32));
    }
}
