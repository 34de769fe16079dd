//! Element-wise operations on the CPU. A task holds its part of the output in cache while it goes through the inputs.

use crate::cpu_loops::{for_each_element_run, put, rectified};
use tensor::{Accumulate, Cpu};

pub(super) fn sum(cpu: &Cpu, inputs: &[&[f32]], coefficients: &[f32], relu: bool, y: &mut [f32]) {
    for_each_element_run(
        cpu,
        [y],
        #[inline(always)]
        |range, [y]| {
            let input = |index: usize| &inputs[index][range.clone()];
            let relu_after = |count: usize| relu && count == inputs.len();
            let first = if let ([_, _, ..], &[a, b, ..]) = (inputs, coefficients) {
                let both = input(0).iter().zip(input(1));
                let relu = relu_after(2);
                for (y, (&left, &right)) in y.iter_mut().zip(both) {
                    *y = rectified(relu, a * left + b * right);
                }
                2
            } else {
                let relu = relu_after(1);
                y.iter_mut().zip(input(0)).for_each(|(y, &x)| *y = rectified(relu, coefficients[0] * x));
                1
            };
            for (index, &coefficient) in coefficients.iter().enumerate().skip(first) {
                let relu = relu_after(index + 1);
                y.iter_mut().zip(input(index)).for_each(|(y, &x)| *y = rectified(relu, *y + coefficient * x));
            }
        },
    );
}

pub(super) fn backward_sum(cpu: &Cpu, coefficient: f32, dy: &[f32], dx: &mut [f32], accumulate: Accumulate) {
    for_each_element_run(
        cpu,
        [dx],
        #[inline(always)]
        |range, [dx]| {
            dx.iter_mut().zip(&dy[range]).for_each(|(dx, &dy)| put(accumulate, dx, coefficient * dy));
        },
    );
}

pub(super) fn product(cpu: &Cpu, inputs: &[&[f32]], y: &mut [f32]) {
    fold(
        cpu,
        inputs,
        y,
        #[inline(always)]
        |_, y, x| y * x,
    );
}

pub(super) fn maximum(cpu: &Cpu, inputs: &[&[f32]], y: &mut [f32]) {
    fold(
        cpu,
        inputs,
        y,
        #[inline(always)]
        |index, best, x| if wins(index, x, best) { x } else { best },
    );
}

/// Whether the input `index` with value `x` beats the best of those before it (see the tie rule in [`super`]).
#[inline(always)]
fn wins(index: usize, x: f32, best: f32) -> bool {
    if index == 1 { x >= best || x.is_nan() } else { x > best }
}

/// `y = op(.. op(1, x[0], x[1]) .., x[last])`; `op` also gets the index of its last argument.
fn fold(cpu: &Cpu, inputs: &[&[f32]], y: &mut [f32], op: impl Fn(usize, f32, f32) -> f32 + Sync) {
    for_each_element_run(
        cpu,
        [y],
        #[inline(always)]
        |range, [y]| {
            y.copy_from_slice(&inputs[0][range.clone()]);
            for (index, input) in inputs.iter().enumerate().skip(1) {
                let input = &input[range.clone()];
                y.iter_mut().zip(input).for_each(|(y, &x)| *y = op(index, *y, x));
            }
        },
    );
}

pub(super) fn backward_product(
    cpu: &Cpu,
    inputs: &[&[f32]],
    index: usize,
    dy: &[f32],
    dx: &mut [f32],
    accumulate: Accumulate,
) {
    for_each_element_run(
        cpu,
        [dx],
        #[inline(always)]
        |range, [dx]| {
            for (i, dx) in range.zip(dx) {
                let others = inputs.iter().enumerate().filter(|&(other, _)| other != index);
                put(accumulate, dx, others.fold(dy[i], |product, (_, input)| product * input[i]));
            }
        },
    );
}

pub(super) fn backward_maximum(
    cpu: &Cpu,
    inputs: &[&[f32]],
    index: usize,
    dy: &[f32],
    dx: &mut [f32],
    accumulate: Accumulate,
) {
    for_each_element_run(
        cpu,
        [dx],
        #[inline(always)]
        |range, [dx]| {
            for (i, dx) in range.zip(dx) {
                let mut winner = (0, inputs[0][i]);
                for (other, input) in inputs.iter().enumerate().skip(1) {
                    let x = input[i];
                    if wins(other, x, winner.1) {
                        winner = (other, x);
                    }
                }
                put(accumulate, dx, if winner.0 == index { dy[i] } else { 0.0 });
            }
        },
    );
}
