//! Functions of one element on the CPU: one vectorised pass.

use super::Activation;
use crate::cpu_loops::{TASK_LEN, for_each_run, inlined, put};
use tensor::{Accumulate, Cpu, Out, View, ViewMut};

/// Slope 0 gets its own expression: `0 * -inf` would be NaN.
#[inline(always)]
fn below(slope: f32, value: f32) -> f32 {
    if slope == 0.0 { 0.0 } else { slope * value }
}

#[rustfmt::skip]
pub(super) fn forward(cpu: &Cpu, f: Activation, x: Option<View<'_>>, y: ViewMut<'_>) {
    let (x, y) = (x.map(|x| x.host()), y.into_host());
    match f {
        Activation::Relu { slope } => map(cpu, x, y, #[inline(always)] |x| if x < 0.0 { below(slope, x) } else { x }),
        Activation::Elu { alpha } => map(cpu, x, y, |x| if x > 0.0 { x } else { alpha * x.exp_m1() }),
        Activation::Sigmoid => map(cpu, x, y, |x| 0.5 * (0.5 * x).tanh() + 0.5),
        Activation::TanH => map(cpu, x, y, f32::tanh),
        Activation::Power { power, scale, shift } => map(cpu, x, y, |x| (shift + scale * x).powf(power)),
        Activation::Below => map(cpu, x, y, #[inline(always)] |x| if x > 0.0 { 0.0 } else { x }),
    }
}

#[rustfmt::skip]
pub(super) fn backward(cpu: &Cpu, f: Activation, seen: View<'_>, dy: Option<View<'_>>, dx: Out<'_>) {
    let (seen, dy, to) = (seen.host(), dy.map(|dy| dy.host()), dx.into_host());
    match f {
        Activation::Relu { slope } => {
            chain(cpu, seen, dy, to, #[inline(always)] |y, dy| if y > 0.0 { dy } else { below(slope, dy) });
        }
        Activation::Elu { alpha } => {
            chain(cpu, seen, dy, to, #[inline(always)] |y, dy| if y > 0.0 { dy } else { (y + alpha) * dy });
        }
        Activation::Sigmoid => chain(cpu, seen, dy, to, #[inline(always)] |y, dy| y * (1.0 - y) * dy),
        Activation::TanH => chain(cpu, seen, dy, to, #[inline(always)] |y, dy| (1.0 - y * y) * dy),
        // Not 0 times an infinite power of 0.
        Activation::Power { power: 0.0, .. } | Activation::Power { scale: 0.0, .. } => chain(cpu, seen, dy, to, #[inline(always)] |_, _| 0.0),
        Activation::Power { power, scale, shift } => {
            chain(cpu, seen, dy, to, |x, dy| power * scale * (shift + scale * x).powf(power - 1.0) * dy);
        }
        Activation::Below => chain(cpu, seen, dy, to, #[inline(always)] |x, dy| if x > 0.0 { 0.0 } else { dy }),
    }
}

fn map(cpu: &Cpu, x: Option<&[f32]>, y: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    inlined!(for_each_run(cpu, y.len(), TASK_LEN, [y]), |range, [y]| match x {
        Some(x) => y.iter_mut().zip(&x[range]).for_each(|(y, &x)| *y = f(x)),
        None => y.iter_mut().for_each(|y| *y = f(*y)),
    });
}

fn chain(
    cpu: &Cpu,
    seen: &[f32],
    dy: Option<&[f32]>,
    (dx, accumulate): (&mut [f32], Accumulate),
    gradient: impl Fn(f32, f32) -> f32 + Sync,
) {
    inlined!(for_each_run(cpu, dx.len(), TASK_LEN, [dx]), |range, [dx]| {
        let dx = dx.iter_mut().zip(&seen[range.clone()]);
        match dy {
            Some(dy) => dx.zip(&dy[range]).for_each(|((dx, &seen), &dy)| {
                put(accumulate, dx, gradient(seen, dy));
            }),
            None => dx.for_each(|(dx, &seen)| *dx = gradient(seen, *dx)),
        }
    });
}
