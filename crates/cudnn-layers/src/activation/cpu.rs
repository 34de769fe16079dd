//! ReLU on the CPU: one vectorised pass.

use crate::cpu_loops::{for_each_element_run, put};
use tensor::{Accumulate, Cpu};

/// Slope 0 gets its own expression: `0 * -inf` would be NaN.
#[inline(always)]
fn relu(slope: f32, x: f32) -> f32 {
    let below = if slope == 0.0 { 0.0 } else { slope * x };
    if x < 0.0 { below } else { x }
}

#[inline(always)]
fn gradient(slope: f32, y: f32, dy: f32) -> f32 {
    let below = if slope == 0.0 { 0.0 } else { slope * dy };
    if y > 0.0 { dy } else { below }
}

pub(super) fn forward(cpu: &Cpu, slope: f32, x: &[f32], y: &mut [f32]) {
    for_each_element_run(
        cpu,
        [y],
        #[inline(always)]
        |range, [y]| y.iter_mut().zip(&x[range]).for_each(|(y, &x)| *y = relu(slope, x)),
    );
}

pub(super) fn forward_in_place(cpu: &Cpu, slope: f32, xy: &mut [f32]) {
    for_each_element_run(
        cpu,
        [xy],
        #[inline(always)]
        |_, [xy]| xy.iter_mut().for_each(|xy| *xy = relu(slope, *xy)),
    );
}

pub(super) fn backward(cpu: &Cpu, slope: f32, [y, dy]: [&[f32]; 2], dx: &mut [f32], accumulate: Accumulate) {
    for_each_element_run(
        cpu,
        [dx],
        #[inline(always)]
        |range, [dx]| {
            for ((dx, &y), &dy) in dx.iter_mut().zip(&y[range.clone()]).zip(&dy[range]) {
                put(accumulate, dx, gradient(slope, y, dy));
            }
        },
    );
}

pub(super) fn backward_in_place(cpu: &Cpu, slope: f32, y: &[f32], dxy: &mut [f32]) {
    for_each_element_run(
        cpu,
        [dxy],
        #[inline(always)]
        |range, [dxy]| dxy.iter_mut().zip(&y[range]).for_each(|(d, &y)| *d = gradient(slope, y, *d)),
    );
}
