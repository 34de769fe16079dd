//! Factors and biases on the CPU.

use super::{Affine, AffineGradients};
use crate::AxisExtents;
use crate::cpu_loops::{elements, for_each_channel, for_each_plane, inlined, put_if_any, rectified};
use crate::cpu_sums::channel_sums;
use tensor::{Accumulate, Cpu, Out, View};

/// In place without an `x`.
pub(super) fn forward(
    cpu: &Cpu,
    extents: &AxisExtents,
    affine: &Affine<'_>,
    relu: bool,
    x: Option<View<'_>>,
    y: Out<'_>,
) {
    let (x, (y, accumulate)) = (x.map(|x| x.host::<f32>()), y.into_host());
    inlined!(for_each_plane(cpu, extents, y), |channel, range, y| {
        let [gamma, beta] = affine.channel(channel);
        let scaled = |x| rectified(relu, gamma * x + beta);
        match (x, accumulate) {
            (Some(x), Accumulate::Replace) => y.iter_mut().zip(&x[range]).for_each(|(y, &x)| *y = scaled(x)),
            (Some(x), Accumulate::Add) => y.iter_mut().zip(&x[range]).for_each(|(y, &x)| *y += scaled(x)),
            (None, _) => y.iter_mut().for_each(|y| *y = scaled(*y)),
        }
    });
}

pub(super) fn backward_affine(
    cpu: &Cpu,
    extents: &AxisExtents,
    x: View<'_>,
    dy: View<'_>,
    gradients: AffineGradients<'_>,
) {
    let blobs = [x.host(), dy.host()];
    let [(gamma, dgamma), (beta, dbeta)] = [gradients.gamma, gradients.beta].map(elements);
    inlined!(for_each_channel(cpu, extents, &mut [], [dgamma, dbeta]), |channel, _, [dgamma, dbeta]| {
        let sums = inlined!(channel_sums(extents, channel, blobs), |[x, dy]| [dy * x, dy]);
        put_if_any(gamma, dgamma, sums[0] as f32);
        put_if_any(beta, dbeta, sums[1] as f32);
    });
}

pub(crate) fn backward_bias(
    cpu: &Cpu,
    e: &AxisExtents,
    (y, _): (Option<View<'_>>, Option<u64>),
    dy: View<'_>,
    db: Out<'_>,
) {
    let (y, dy, (db, accumulate)) = (y.map(|y| y.host::<f32>()), dy.host::<f32>(), db.into_host());
    inlined!(for_each_channel(cpu, e, &mut [], [db]), |channel, _, [db]| {
        let places = (0..e.outer).flat_map(|sample| e.plane(sample, channel));
        let sum: f64 = match y {
            None if e.inner > 1 => inlined!(channel_sums(e, channel, [dy]), |dy| dy)[0],
            _ => places.filter(|&i| y.is_none_or(|y| y[i] > 0.0)).map(|i| f64::from(dy[i])).sum(),
        };
        put_if_any(accumulate, db, sum as f32);
    });
}
