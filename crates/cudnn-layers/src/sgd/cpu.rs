//! The update on the CPU: reads three arrays and writes two, once.

use super::{Loss, ParamUpdate, Regularization, Rule, StepState};
use crate::{
    cpu_loops::{TASK_LEN, for_each_element_run, for_each_run_with},
    cpu_sums::{SquaredDeviation, sums},
};
use tensor::{Accumulate, Cpu};

pub(super) fn add_losses(losses: &[Loss<'_>], state: &mut StepState, accumulate: Accumulate) {
    let sum = |losses: &[f32]| losses.iter().map(|&loss| f64::from(loss)).sum::<f64>();
    let start = if accumulate == Accumulate::Add { state.loss } else { 0.0 };
    state.loss = losses.iter().fold(start, |total, (losses, weight)| total + weight * sum(losses.host()));
}

pub(super) fn update_all(
    cpu: &Cpu,
    rule: &Rule,
    rate: f32,
    state: &mut StepState,
    params: &mut [ParamUpdate<'_>],
) {
    let mut factor = 1.0;
    if let Some(limit) = rule.clip {
        state.squares = params.iter().map(|param| sum_of_squares(cpu, param.dw.host())).sum();
        let norm = state.squares.sqrt();
        if norm > f64::from(limit) {
            factor = (f64::from(limit) / norm) as f32;
        }
    }
    state.scale = factor / rule.mini_batches as f32;
    state.refused |= u32::from(!state.loss.is_finite());
    if state.refused == 0 {
        params.iter_mut().for_each(|param| update(cpu, rule, rate, state.scale, param));
    }
}

fn update(cpu: &Cpu, rule: &Rule, rate: f32, scale: f32, param: &mut ParamUpdate<'_>) {
    let &Rule { momentum, regularization, .. } = rule;
    let ParamUpdate { lr_mult, decay, dw, v, w } = param;
    let (rate, decay, dw) = (rate * *lr_mult, *decay, dw.host::<f32>());
    for_each_element_run(
        cpu,
        [v.host(), w.host()],
        #[inline(always)]
        |range, [v, w]| {
            let dw = &dw[range];
            match regularization {
                Regularization::L2 => step(dw, v, w, |dw, w| scale * dw + decay * w, rate, momentum),
                Regularization::L1 => step(dw, v, w, |dw, w| scale * dw + decay * sign(w), rate, momentum),
            }
        },
    );
}

#[inline(always)]
fn step(
    dw: &[f32],
    v: &mut [f32],
    w: &mut [f32],
    gradient: impl Fn(f32, f32) -> f32,
    rate: f32,
    momentum: f32,
) {
    for ((v, w), &dw) in v.iter_mut().zip(w).zip(dw) {
        *v = momentum * *v + rate * gradient(dw, *w);
        *w -= *v;
    }
}

/// The sign with `sign(0) = 0`, unlike `f32::signum`.
#[inline(always)]
fn sign(value: f32) -> f32 {
    let positive = if value > 0.0 { 1.0 } else { 0.0 };
    if value < 0.0 { -1.0 } else { positive }
}

/// Tasks whose partial sums fit one small array; blobs with more elements get longer tasks.
const PARTS: usize = 256;

/// Summed in a fixed order, in double precision above runs of a few thousand elements.
fn sum_of_squares(cpu: &Cpu, elements: &[f32]) -> f64 {
    let run = elements.len().div_ceil(PARTS).max(TASK_LEN);
    let mut parts = [0.0; PARTS];
    let used = elements.len().div_ceil(run);
    for_each_run_with(
        cpu,
        used,
        1,
        ([], &mut parts[..used]),
        #[inline(always)]
        |task, [], part| {
            let end = ((task.start + 1) * run).min(elements.len());
            [part[0]] = sums([&elements[task.start * run..end]], SquaredDeviation { mean: 0.0 });
        },
    );
    parts.iter().sum()
}
