//! The per-channel factor on the CPU.

use super::{Affine, AffineGradients};
use crate::{
    AxisExtents,
    cpu_loops::{for_each_run, items_per_task, put, rectified},
    cpu_sums::{WithDeviation, channel_sums},
};
use tensor::{Accumulate, Cpu};

pub(super) fn forward(
    cpu: &Cpu,
    extents: &AxisExtents,
    affine: &Affine<'_>,
    relu: bool,
    x: &[f32],
    y: &mut [f32],
) {
    for_each_plane(
        cpu,
        extents,
        y,
        #[inline(always)]
        |channel, start, y| {
            let [gamma, beta] = affine.channel(channel);
            y.iter_mut().zip(&x[start..]).for_each(|(y, &x)| *y = rectified(relu, gamma * x + beta));
        },
    );
}

pub(super) fn forward_in_place(cpu: &Cpu, extents: &AxisExtents, affine: &Affine<'_>, xy: &mut [f32]) {
    for_each_plane(
        cpu,
        extents,
        xy,
        #[inline(always)]
        |channel, _, xy| {
            let [gamma, beta] = affine.channel(channel);
            xy.iter_mut().for_each(|xy| *xy = gamma * *xy + beta);
        },
    );
}

pub(super) fn backward(
    cpu: &Cpu,
    extents: &AxisExtents,
    gamma: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    accumulate: Accumulate,
) {
    for_each_plane(
        cpu,
        extents,
        dx,
        #[inline(always)]
        |channel, start, dx| {
            let gamma = gamma[channel];
            dx.iter_mut().zip(&dy[start..]).for_each(|(dx, &dy)| put(accumulate, dx, gamma * dy));
        },
    );
}

/// Calls `body(channel, index of the plane's first element, plane)` for every plane of `blob`.
fn for_each_plane(
    cpu: &Cpu,
    extents: &AxisExtents,
    blob: &mut [f32],
    body: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    for_each_run(
        cpu,
        extents.outer * extents.axis,
        items_per_task(extents.inner),
        [blob],
        #[inline(always)]
        |planes, [blob]| {
            for (plane, elements) in planes.zip(blob.chunks_exact_mut(extents.inner)) {
                body(plane % extents.axis, plane * extents.inner, elements);
            }
        },
    );
}

pub(super) fn backward_affine(
    cpu: &Cpu,
    extents: &AxisExtents,
    [x, dy]: [&[f32]; 2],
    mut gradients: AffineGradients<'_>,
) {
    let accumulate = gradients.accumulate;
    let terms = WithDeviation { mean: 0.0 };
    let body = |channel| channel_sums(extents, channel, [x, dy], terms).map(|sum| sum as f32);
    let run = items_per_task(extents.per_index());
    let dgamma = gradients.dgamma.host();
    match &mut gradients.dbeta {
        Some(dbeta) => for_each_run(
            cpu,
            extents.axis,
            run,
            [dgamma, dbeta.host()],
            #[inline(always)]
            |channels, [dgamma, dbeta]| {
                for ((channel, dgamma), dbeta) in channels.zip(dgamma).zip(dbeta) {
                    let [by_gamma, by_beta] = body(channel);
                    put(accumulate, dgamma, by_gamma);
                    put(accumulate, dbeta, by_beta);
                }
            },
        ),
        None => for_each_run(
            cpu,
            extents.axis,
            run,
            [dgamma],
            #[inline(always)]
            |channels, [dgamma]| {
                channels.zip(dgamma).for_each(|(channel, to)| put(accumulate, to, body(channel)[0]));
            },
        ),
    }
}
