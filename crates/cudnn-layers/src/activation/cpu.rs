//! ReLU on the CPU: one vectorised pass.

use crate::cpu_loops::{for_each_element_run, put};
use tensor::{Accumulate, Cpu};

/// Slope 0 gets its own expression: `0 * -inf` would be NaN.
#[inline(always)]
fn below(slope: f32, value: f32) -> f32 {
    if slope == 0.0 { 0.0 } else { slope * value }
}

#[inline(always)]
fn relu(slope: f32, x: f32) -> f32 {
    if x < 0.0 { below(slope, x) } else { x }
}

#[inline(always)]
fn gradient(slope: f32, y: f32, dy: f32) -> f32 {
    if y > 0.0 { dy } else { below(slope, dy) }
}

pub(super) fn forward(cpu: &Cpu, slope: f32, x: Option<&[f32]>, y: &mut [f32]) {
    for_each_element_run(
        cpu,
        [y],
        #[inline(always)]
        |range, [y]| match x {
            Some(x) => y.iter_mut().zip(&x[range]).for_each(|(y, &x)| *y = relu(slope, x)),
            None => y.iter_mut().for_each(|y| *y = relu(slope, *y)),
        },
    );
}

pub(super) fn backward(
    cpu: &Cpu,
    slope: f32,
    y: &[f32],
    dy: Option<&[f32]>,
    dx: &mut [f32],
    accumulate: Accumulate,
) {
    for_each_element_run(
        cpu,
        [dx],
        #[inline(always)]
        |range, [dx]| {
            let dx = dx.iter_mut().zip(&y[range.clone()]);
            match dy {
                Some(dy) => dx.zip(&dy[range]).for_each(|((dx, &y), &dy)| {
                    put(accumulate, dx, gradient(slope, y, dy));
                }),
                None => dx.for_each(|(dx, &y)| *dx = gradient(slope, y, *dx)),
            }
        },
    );
}
