//! The update on the CPU: reads gradient, history and weights and writes the latter two, once.

use super::{Larc, Loss, Method, ParamUpdate, Regularization, Rule, StepRates, StepState};
use crate::AxisExtents;
use crate::cpu_loops::{TASK_LEN, for_each_run_with, inlined};
use crate::cpu_sums::channel_sums;
use tensor::{Accumulate, Cpu, View, ViewMut};

fn on_host(state: ViewMut<'_>) -> &mut StepState {
    bytemuck::from_bytes_mut(state.into_host::<u8>())
}

pub(super) fn offer_loss(_: &Cpu, state: ViewMut<'_>) {
    let state = on_host(state);
    (state.squares, state.loss) = (state.loss, f64::NAN);
}

pub(super) fn add_losses(_: &Cpu, losses: &[Loss<'_>], state: ViewMut<'_>, accumulate: Accumulate) {
    let state = on_host(state);
    let sum = |losses: &[f32]| losses.iter().map(|&loss| f64::from(loss)).sum::<f64>();
    let start = if accumulate == Accumulate::Add { state.loss } else { 0.0 };
    state.loss = losses.iter().fold(start, |total, (losses, weight)| total + weight * sum(losses.host()));
}

pub(super) fn update_all(
    cpu: &Cpu,
    rule: &Rule,
    rates: View<'_>,
    state: ViewMut<'_>,
    params: &mut [ParamUpdate<'_>],
    _: bool,
) {
    let (rates, state) = (bytemuck::pod_read_unaligned(rates.host::<u8>()), on_host(state));
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
        params.iter_mut().for_each(|param| update(cpu, rule, &rates, state.scale, param));
    }
}

/// The factor of LARC.
fn trust(cpu: &Cpu, larc: Larc, rate: f32, scale: f32, param: &mut ParamUpdate<'_>) -> f32 {
    let norm = |elements: &[f32]| sum_of_squares(cpu, elements).sqrt();
    let (w, g) = (norm(param.w.host()), norm(param.dw.host()) * f64::from(scale));
    if w == 0.0 || g == 0.0 {
        return 1.0;
    }
    let ratio = f64::from(larc.eta) * w / g;
    (if larc.clips { (ratio / f64::from(rate)).min(1.0) } else { ratio }) as f32
}

#[rustfmt::skip]
fn update(cpu: &Cpu, rule: &Rule, rates: &StepRates, scale: f32, param: &mut ParamUpdate<'_>) {
    let &Rule { method, momentum: m, momentum2: m2, .. } = rule;
    let a = rates.rate * rule.larc.map_or(param.lr_mult, |larc| trust(cpu, larc, rates.rate, scale, param));
    let (ac, delta, shrink) = (a * rates.correction, rates.delta, 1.0 - a * param.decay);
    let decay = if method == Method::AdamW { 0.0 } else { param.decay };
    let slope = (scale, decay, rule.regularization);
    match method {
        Method::Sgd => steps(cpu, slope, param, #[inline(always)] move |g, [h], w| {
            *h = m * *h + a * g;
            *w -= *h;
        }),
        Method::Nesterov => steps(cpu, slope, param, #[inline(always)] move |g, [h], w| {
            let before = *h;
            *h = m * before + a * g;
            *w -= (1.0 + m) * *h - m * before;
        }),
        Method::AdaGrad => steps(cpu, slope, param, #[inline(always)] move |g, [h], w| {
            *h += g * g;
            *w -= a * g / (h.sqrt() + delta);
        }),
        Method::RmsProp => steps(cpu, slope, param, #[inline(always)] move |g, [h], w| {
            *h = m2 * *h + (1.0 - m2) * g * g;
            *w -= a * g / (h.sqrt() + delta);
        }),
        Method::AdaDelta => steps(cpu, slope, param, #[inline(always)] move |g, [h, k], w| {
            *h = m * *h + (1.0 - m) * g * g;
            let u = g * ((*k + delta) / (*h + delta)).sqrt();
            *k = m * *k + (1.0 - m) * u * u;
            *w -= a * u;
        }),
        Method::Adam | Method::AdamW => steps(cpu, slope, param, #[inline(always)] move |g, [h, k], w| {
            *h = m * *h + (1.0 - m) * g;
            *k = m2 * *k + (1.0 - m2) * g * g;
            let kept = if method == Method::AdamW { shrink * *w } else { *w };
            *w = kept - ac * *h / (k.sqrt() + delta);
        }),
    }
}

/// Steps for every element of `param`: the gradient, the numbers that are kept of it, the weight.
fn steps<const KEPT: usize>(
    cpu: &Cpu,
    slope: (f32, f32, Regularization),
    param: &mut ParamUpdate<'_>,
    step: impl Fn(f32, [&mut f32; KEPT], &mut f32) + Copy + Sync,
) {
    let ParamUpdate { dw, history, w, .. } = param;
    let (dw, mut kept) = (dw.host::<f32>(), history.host::<f32>());
    let histories = [(); KEPT].map(|()| kept.split_off_mut(..dw.len()).expect("checked by the contract"));
    inlined!(for_each_run_with(cpu, dw.len(), TASK_LEN, (histories, w.host())), |range, histories, w| {
        // Copies, which cannot be what is written: else nothing would be vectorised.
        let ((scale, decay, regularization), step, len) = (slope, step, range.len());
        let (dw, w) = (&dw[range], &mut w[..len]);
        let mut histories = histories.map(|history| &mut history[..len]);
        for i in 0..len {
            let penalty = match regularization {
                Regularization::L2 => w[i],
                // The sign, but 0 for 0, unlike `f32::signum`.
                Regularization::L1 => f32::from(w[i] > 0.0) - f32::from(w[i] < 0.0),
            };
            let gradient = scale * dw[i] + decay * penalty;
            step(gradient, histories.each_mut().map(|history| &mut history[i]), &mut w[i]);
        }
    });
}

/// Tasks whose partial sums fit one small array; blobs with more elements get longer tasks.
const PARTS: usize = 256;

/// Summed in a fixed order, in double precision above runs of a few thousand elements.
fn sum_of_squares(cpu: &Cpu, elements: &[f32]) -> f64 {
    let run = elements.len().div_ceil(PARTS).max(TASK_LEN);
    let mut parts = [0.0; PARTS];
    let used = elements.len().div_ceil(run);
    inlined!(for_each_run_with(cpu, used, 1, ([], &mut parts[..used])), |task, [], part| {
        let elements = &elements[task.start * run..elements.len().min(task.end * run)];
        let one_channel = AxisExtents { outer: 1, axis: 1, inner: elements.len() };
        [part[0]] = inlined!(channel_sums(&one_channel, 0, [elements]), |[x]| [x * x]);
    });
    parts.iter().sum()
}
