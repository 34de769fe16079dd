//! Normalisation across channels on the CPU: a block of pixels at a time, walking along the channels.

use super::{
    Lrn,
    power::{InversePower, with_power},
};
use crate::{
    AxisExtents,
    cpu_loops::{for_each_column_block, items_per_task, put},
};
use std::ops::Range;
use tensor::{Accumulate, Cpu};

/// Room for the rows of one neighbourhood and their sum: half of a first-level cache.
const ROOM: usize = 6144;

/// Pixels of a block: as many as let the neighbourhood stay in [`ROOM`], in whole vectors.
fn block_width(lrn: &Lrn) -> usize {
    (ROOM / (lrn.size + 1)).min(1024) / 16 * 16
}

/// Width of a block and blocks of a task.
fn blocks(lrn: &Lrn, extents: &AxisExtents) -> (usize, usize) {
    let width = block_width(lrn);
    (width, items_per_task(extents.axis * width.min(extents.inner)))
}

/// Channels in the neighbourhood of `channel`.
#[inline(always)]
fn neighbours(lrn: &Lrn, channels: usize, channel: usize) -> Range<usize> {
    channel.saturating_sub(lrn.size / 2)..(channel + lrn.size / 2 + 1).min(channels)
}

pub(super) fn forward(cpu: &Cpu, lrn: &Lrn, extents: &AxisExtents, x: &[f32], out: [&mut [f32]; 2]) {
    with_power!(lrn, forward_with(cpu, lrn, extents, x, out))
}

fn forward_with(
    cpu: &Cpu,
    lrn: &Lrn,
    extents: &AxisExtents,
    x: &[f32],
    out: [&mut [f32]; 2],
    power: impl InversePower,
) {
    let (k, factor) = (lrn.k, lrn.alpha / lrn.size as f32);
    for_each_column_block(
        cpu,
        extents,
        blocks(lrn, extents),
        out,
        #[inline(always)]
        |outer, columns, [mut y, mut scale]| {
            let row = |channel: usize| {
                let start = (outer * extents.axis + channel) * extents.inner;
                &x[start + columns.start..start + columns.end]
            };
            for channel in 0..extents.axis {
                let scale = scale.row(channel);
                scale.fill(0.0);
                for neighbour in neighbours(lrn, extents.axis, channel) {
                    scale.iter_mut().zip(row(neighbour)).for_each(|(sum, &x)| *sum += x * x);
                }
                for ((y, scale), &x) in y.row(channel).iter_mut().zip(scale).zip(row(channel)) {
                    *scale = k + factor * *scale;
                    *y = x * power.of(*scale);
                }
            }
        },
    );
}

pub(super) fn backward(
    cpu: &Cpu,
    lrn: &Lrn,
    extents: &AxisExtents,
    inputs: [&[f32]; 3],
    dx: &mut [f32],
    accumulate: Accumulate,
) {
    with_power!(lrn, backward_with(cpu, lrn, extents, inputs, dx, accumulate))
}

fn backward_with(
    cpu: &Cpu,
    lrn: &Lrn,
    extents: &AxisExtents,
    inputs: [&[f32]; 3],
    dx: &mut [f32],
    accumulate: Accumulate,
    power: impl InversePower,
) {
    let width = block_width(lrn);
    let factor = 2.0 * lrn.alpha * lrn.beta / lrn.size as f32;
    for_each_column_block(
        cpu,
        extents,
        blocks(lrn, extents),
        [dx],
        #[inline(always)]
        |outer, columns, [mut dx]| {
            let rows = |channel: usize| {
                let start = (outer * extents.axis + channel) * extents.inner;
                inputs.map(|input| &input[start + columns.start..start + columns.end])
            };
            // Row `channel % size` holds dy * x * scale^(-beta - 1) of the last `size` channels.
            let mut room = [0.0; ROOM];
            let (sum, ring) = room.split_at_mut(width);
            let sum = &mut sum[..columns.len()];
            let mut ready = 0;
            for channel in 0..extents.axis {
                let neighbours = neighbours(lrn, extents.axis, channel);
                while ready < neighbours.end {
                    ratios(rows(ready), &mut ring[ready % lrn.size * width..], power);
                    ready += 1;
                }
                sum.fill(0.0);
                for neighbour in neighbours {
                    let ratios = &ring[neighbour % lrn.size * width..];
                    sum.iter_mut().zip(ratios).for_each(|(sum, &ratio)| *sum += ratio);
                }
                combine(rows(channel), sum, factor, dx.row(channel), accumulate, power);
            }
        },
    );
}

/// `dy * x * scale^(-beta - 1)`.
#[inline(always)]
pub(super) fn ratios([x, scale, dy]: [&[f32]; 3], to: &mut [f32], power: impl InversePower) {
    for (((to, &x), &scale), &dy) in to.iter_mut().zip(x).zip(scale).zip(dy) {
        *to = dy * x * (power.of(scale) / scale);
    }
}

/// `dx (+)= dy * scale^-beta - factor * x * sum`.
#[inline(always)]
pub(super) fn combine(
    [x, scale, dy]: [&[f32]; 3],
    sum: &[f32],
    factor: f32,
    dx: &mut [f32],
    accumulate: Accumulate,
    power: impl InversePower,
) {
    for ((((dx, &x), &scale), &dy), &sum) in dx.iter_mut().zip(x).zip(scale).zip(dy).zip(sum) {
        put(accumulate, dx, dy * power.of(scale) - factor * x * sum);
    }
}
