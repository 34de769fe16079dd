//! Element-wise operations on the CPU.

use super::Combination;
use crate::cpu_loops::{TASK_LEN, for_each_run, inlined, put, rectified};
use tensor::{Cpu, Out, View, ViewMut};

/// Elements that stay in the first-level cache while the inputs are gone through.
const BLOCK: usize = 2048;

pub(super) fn forward(cpu: &Cpu, how: &Combination, inputs: &[View<'_>], relu: bool, y: ViewMut<'_>) {
    let inputs: Vec<&[f32]> = inputs.iter().map(View::host).collect();
    inlined!(for_each_run(cpu, y.len(), TASK_LEN, [y.into_host()]), |range, [y]| {
        for (start, y) in range.step_by(BLOCK).zip(y.chunks_mut(BLOCK)) {
            for (index, input) in inputs.iter().enumerate() {
                let elements = y.iter_mut().zip(&input[start..]);
                match (how, index) {
                    (Combination::Sum(a), 0) => elements.for_each(|(y, &x)| *y = a[0] * x),
                    (Combination::Sum(a), _) => elements.for_each(|(y, &x)| *y += a[index] * x),
                    (_, 0) => elements.for_each(|(y, &x)| *y = x),
                    (Combination::Product, _) => elements.for_each(|(y, &x)| *y *= x),
                    (Combination::Maximum, _) => {
                        elements.for_each(|(best, &x)| *best = if wins(index, x, *best) { x } else { *best });
                    }
                }
            }
            y.iter_mut().for_each(|y| *y = rectified(relu, *y));
        }
    });
}

/// Whether the input `index` with value `x` beats the best of those before it (see the tie rule in [`super`]).
#[inline(always)]
fn wins(index: usize, x: f32, best: f32) -> bool {
    if index == 1 { x >= best || x.is_nan() } else { x > best }
}

pub(super) fn backward(
    cpu: &Cpu,
    how: &Combination,
    inputs: &[View<'_>],
    index: usize,
    dy: View<'_>,
    dx: Out<'_>,
) {
    let inputs: Vec<&[f32]> = inputs.iter().map(View::host).collect();
    let (dy, (dx, accumulate)) = (dy.host::<f32>(), dx.into_host());
    inlined!(for_each_run(cpu, dx.len(), TASK_LEN, [dx]), |range, [dx]| {
        let dx = dx.iter_mut().zip(&dy[range.clone()]);
        match how {
            Combination::Sum(factors) => {
                let a = factors[index];
                dx.for_each(|(dx, &dy)| put(accumulate, dx, a * dy));
            }
            Combination::Product => dx.zip(range).for_each(|((dx, &dy), i)| {
                let others = inputs.iter().enumerate().filter(|&(other, _)| other != index);
                put(accumulate, dx, others.fold(dy, |product, (_, input)| product * input[i]));
            }),
            Combination::Maximum => dx.zip(range).for_each(|((dx, &dy), i)| {
                put(accumulate, dx, if winner(&inputs, i) == index { dy } else { 0.0 });
            }),
        }
    });
}

/// The input with the maximum at place `i`.
#[inline(always)]
fn winner(inputs: &[&[f32]], i: usize) -> usize {
    let others = inputs.iter().enumerate().skip(1);
    let first = (0, inputs[0][i]);
    others.fold(first, |best, (index, x)| if wins(index, x[i], best.1) { (index, x[i]) } else { best }).0
}
