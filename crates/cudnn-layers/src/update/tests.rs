//! Several updates against the formula in double precision.

use super::*;
use crate::testing::{FAULTS, FEW_ROUNDINGS, assert_same_bits, on_every_device, wide};
use std::cell::RefCell;
use std::sync::{PoisonError, RwLockReadGuard};
use tensor::testing::{assert_close, random};
use tensor::{Arena, Bf16, Format, Setting, Span};

const RATE: f32 = 0.1;
const RULE: Rule = Rule {
    method: Method::Sgd,
    momentum: 0.9,
    momentum2: 0.99,
    delta: 1e-3,
    regularization: Regularization::L2,
    clip: None,
    mini_batches: 2,
    larc: None,
};
const METHODS: [Method; 7] = [
    Method::Sgd,
    Method::Nesterov,
    Method::AdaGrad,
    Method::RmsProp,
    Method::AdaDelta,
    Method::Adam,
    Method::AdamW,
];

/// A device's memory for the rates and the state of a training.
struct Memory {
    rates: Setting<StepRates>,
    state: Arena,
    span: Span,
    /// An update is refused after any fault of the device. Given back last, when the work is done.
    _no_faults: RwLockReadGuard<'static, ()>,
}

impl Memory {
    fn new(device: &Device, rate: f32) -> Self {
        let span = Span::bytes(0, StepState::SPACE.bytes());
        let mut memory = Self {
            rates: Setting::new(device).unwrap(),
            state: Arena::on(device, span.len).unwrap(),
            span,
            _no_faults: FAULTS.read().unwrap_or_else(PoisonError::into_inner),
        };
        memory.rates.set(RULE.rates(rate, 0)).unwrap();
        memory
    }

    fn update_all(&mut self, device: &Device, rule: &Rule, params: &mut [ParamUpdate<'_>]) {
        self.update_some(device, rule, params, true);
    }

    fn update_some(&mut self, device: &Device, rule: &Rule, params: &mut [ParamUpdate<'_>], is_first: bool) {
        update_all(device, rule, self.rates.view(), self.state.view_mut(self.span), params, is_first);
    }

    fn add_losses(&mut self, device: &Device, losses: &[Loss<'_>], accumulate: Accumulate) {
        add_losses(device, losses, self.state.view_mut(self.span), accumulate);
    }

    fn state(&self) -> StepState {
        bytemuck::pod_read_unaligned(&self.state.read::<u8>(self.span).unwrap())
    }
}

/// History and weights after three updates with growing gradients, one after the other.
fn three_updates(rule: &Rule, decay: f32, dw: &[f32], w: &[f32]) -> Vec<f64> {
    let (mut w, mut v) = (wide(w), vec![0.0; w.len()]);
    for step in 1..=3 {
        for ((w, v), &dw) in w.iter_mut().zip(&mut v).zip(dw) {
            let penalty = match rule.regularization {
                Regularization::L2 => *w,
                Regularization::L1 => w.signum() * f64::from(u8::from(*w != 0.0)),
            };
            let gradient =
                f64::from(dw) * f64::from(step) / rule.mini_batches as f64 + f64::from(decay) * penalty;
            *v = f64::from(rule.momentum) * *v + f64::from(RATE * 0.5) * gradient;
            *w -= *v;
        }
    }
    v.extend(w);
    v
}

/// What each method makes of one weight with its history, as its authors or Caffe give it, at iteration `t` from 1: the
/// gradient `g` is without the decay.
fn published(
    rule: &Rule,
    t: i32,
    (g, w, [h, k]): (f64, f64, [f64; 2]),
    (rate, decay): (f64, f64),
) -> (f64, [f64; 2]) {
    let [m, m2, delta] = [rule.momentum, rule.momentum2, rule.delta].map(f64::from);
    let decayed = g + decay * w;
    let adam = |g: f64| {
        let [h, k] = [m * h + (1.0 - m) * g, m2 * k + (1.0 - m2) * g * g];
        ([h, k], [h / (1.0 - m.powi(t)), k / (1.0 - m2.powi(t))])
    };
    match rule.method {
        Method::Sgd => {
            let h = m * h + rate * decayed;
            (w - h, [h, k])
        }
        Method::Nesterov => {
            // From the point that the momentum leads to: what Caffe keeps is one momentum ahead.
            let next = m * h + rate * decayed;
            (w + m * h - (1.0 + m) * next, [next, k])
        }
        Method::AdaGrad => {
            let h = h + decayed.powi(2);
            (w - rate * decayed / (h.sqrt() + delta), [h, k])
        }
        Method::RmsProp => {
            let h = m2 * h + (1.0 - m2) * decayed.powi(2);
            (w - rate * decayed / (h.sqrt() + delta), [h, k])
        }
        Method::AdaDelta => {
            let h = m * h + (1.0 - m) * decayed.powi(2);
            let step = (k + delta).sqrt() / (h + delta).sqrt() * decayed;
            (w - rate * step, [h, m * k + (1.0 - m) * step.powi(2)])
        }
        Method::Adam => {
            // Kingma and Ba's "epsilon hat" beside the uncorrected root.
            let (kept, _) = adam(decayed);
            let rate = rate * (1.0 - m2.powi(t)).sqrt() / (1.0 - m.powi(t));
            (w - rate * kept[0] / (kept[1].sqrt() + delta), kept)
        }
        Method::AdamW => {
            let (kept, [h, k]) = adam(g);
            (w - rate * (h / (k.sqrt() + delta) + decay * w), kept)
        }
    }
}

/// History and weights after five updates in double precision.
fn five_updates(rule: &Rule, dw: &[f32], w: &[f32]) -> Vec<f64> {
    let (mut w, mut kept) = (wide(w), vec![[0.0; 2]; w.len()]);
    for t in 1..=5 {
        let scale = f64::from(t) / rule.mini_batches as f64;
        let norm = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
        let rate = f64::from(RATE)
            * rule.larc.map_or(0.5, |Larc { eta, clips }| {
                let ratio = f64::from(eta) * norm(&w) / (norm(&wide(dw)) * scale);
                if clips { (ratio / f64::from(RATE)).min(1.0) } else { ratio }
            });
        for ((w, kept), &dw) in w.iter_mut().zip(&mut kept).zip(dw) {
            let factors = (rate, f64::from(0.02f32));
            (*w, *kept) = published(rule, t, (f64::from(dw) * scale, *w, *kept), factors);
        }
    }
    let history = (0..rule.method.histories()).flat_map(|at| kept.iter().map(move |kept| kept[at]));
    history.chain(w).collect()
}

/// No copy of the weights.
fn nothing<'a>() -> ViewMut<'a> {
    ViewMut::of(&mut [0.0_f32; 0][..])
}

/// `params` as (elements, `lr_mult`, decay) cut out of one gradient and one run of histories and weights.
fn cut<'a>(params: &[(usize, f32, f32)], mut dw: View<'a>, mut w: ViewMut<'a>) -> Vec<ParamUpdate<'a>> {
    let mut v = w.take(Format::F32, dw.len());
    let mut updates = vec![];
    for &(len, lr_mult, decay) in params {
        let [history, w] = [&mut v, &mut w].map(|view| view.take(Format::F32, len));
        updates.push(ParamUpdate {
            lr_mult,
            decay,
            dw: dw.take(Format::F32, len),
            history,
            w,
            copy: nothing(),
        });
    }
    updates
}

on_every_device! {
    fn updates_follow_caffe_s_order(on: &TestDevice) {
        for (len, regularization) in [
            (0, Regularization::L2),
            (1, Regularization::L2),
            (2048, Regularization::L1),
            (100_003, Regularization::L2),
            (100_003, Regularization::L1),
        ] {
            let rule = Rule { regularization, ..RULE };
            let (mut weights, dw) = (random(len, 1), random(len, 2));
            if let Some(weight) = weights.get_mut(len / 2) {
                *weight = 0.0;
            }
            let gradients = [1.0, 2.0, 3.0].map(|step| dw.iter().map(|&dw| dw * step).collect::<Vec<f32>>());
            let mut start = vec![0.0; len];
            start.extend_from_slice(&weights);
            let both = on.run_in_place(gradients.each_ref().map(Vec::as_slice), &start, |device, dw, mut out| {
                let mut memory = Memory::new(device, RATE);
                for dw in dw {
                    memory.update_all(device, &rule, &mut cut(&[(len, 0.5, 0.02)], dw, out.reborrow()));
                }
            });
            assert_close(&both, &three_updates(&rule, 0.02, &dw, &weights), FEW_ROUNDINGS, "history and weights");
        }
    }

    fn every_method_follows_its_published_formula(on: &TestDevice) {
        for method in METHODS {
            for (len, larc) in [
                (1, None),
                (2048, Some(Larc { eta: 0.1, clips: false })),
                (70_003, None),
                (70_003, Some(Larc { eta: 0.1, clips: true })),
                (600_000, Some(Larc { eta: 0.01, clips: true })),
            ] {
                let rule = Rule { method, larc, ..RULE };
                let (weights, dw) = (random(len, 1), random(len, 2));
                let grown = [1.0, 2.0, 3.0, 4.0, 5.0].map(|step| dw.iter().map(|&dw| dw * step).collect::<Vec<f32>>());
                let mut start = vec![0.0; method.histories() * len];
                start.extend_from_slice(&weights);
                let all = on.run_in_place(grown.each_ref().map(Vec::as_slice), &start, |device, dw, mut out| {
                    let mut memory = Memory::new(device, RATE);
                    for (iteration, dw) in dw.into_iter().enumerate() {
                        memory.rates.set(rule.rates(RATE, iteration as u64)).unwrap();
                        let mut w = out.reborrow();
                        let history = w.take(Format::F32, method.histories() * len);
                        let update = ParamUpdate { lr_mult: 0.5, decay: 0.02, dw, history, w, copy: nothing() };
                        memory.update_all(device, &rule, &mut [update]);
                    }
                });
                let what = format!("{method:?} of {len} weights, {larc:?}");
                assert_close(&all, &five_updates(&rule, &dw, &weights), FEW_ROUNDINGS, &what);
            }
        }
    }

    /// As many parameters of such lengths and rates as a deep net has.
    fn all_parameters_at_once_are_updated_as_one_by_one(on: &TestDevice) {
        const LENS: [usize; 5] = [64, 9408, 1, 0, 5001];
        let params: Vec<(usize, f32, f32)> = (0..150)
            .map(|index| (LENS[index % 5], 1.0 / (1 + index) as f32, 0.01 * (index % 3) as f32))
            .collect();
        let len: usize = params.iter().map(|&(len, ..)| len).sum();
        let (dw, start) = (random(len, 1), random(2 * len, 2));
        let larc = Rule { larc: Some(Larc { eta: 0.01, clips: false }), ..RULE };
        let all = |rule: &Rule, in_one_call: bool| {
            on.run_in_place([&dw], &start, |device, [dw], out| {
                let mut memory = Memory::new(device, RATE);
                let mut updates = cut(&params, dw, out);
                let at_once = if in_one_call { updates.len() } else { 1 };
                for (number, updates) in updates.chunks_mut(at_once).enumerate() {
                    memory.update_some(device, rule, updates, number == 0);
                }
            })
        };
        for rule in [RULE, larc] {
            let together = all(&rule, true);
            assert_eq!(together, all(&rule, false));
            assert!(start.iter().zip(&together).all(|(before, after)| before != after), "every element changes");
        }
    }

    fn gradients_are_clipped_to_their_norm(on: &TestDevice) {
        for lens in [&[0usize][..], &[1], &[100], &[2048, 32_768], &[32_769, 0, 1, 9_000_001]] {
            let len = lens.iter().sum();
            let (dw, start) = (random(len, 3), vec![0.0; 2 * len]);
            let squares: f64 = wide(&dw).iter().map(|x| x * x).sum();
            let params: Vec<_> = lens.iter().map(|&len| (len, 1.0, 0.0)).collect();
            for (limit, factor) in [(1e30, 1.0), (0.25, 0.25 / squares.sqrt())] {
                let rule = Rule { clip: Some(limit), ..RULE };
                let seen = RefCell::new(vec![]);
                let both = on.run_in_place([&dw], &start, |device, [dw], out| {
                    let mut memory = Memory::new(device, 1.0);
                    memory.update_all(device, &rule, &mut cut(&params, dw, out));
                    seen.borrow_mut().push(memory.state());
                });
                let StepState { squares: found, scale, .. } = same(seen);
                assert!((found - squares).abs() <= 1e-6 * squares, "{found} against {squares}");
                if len > 0 {
                    assert!((f64::from(scale) - factor / 2.0).abs() <= 1e-6 * factor, "{scale} for {factor}");
                    let expected: Vec<f64> = wide(&dw).iter().map(|dw| factor / 2.0 * dw).collect();
                    assert_close(&both[..len], &expected, FEW_ROUNDINGS, "history");
                }
            }
        }
    }

    fn losses_are_added_up_with_their_weights(on: &TestDevice) {
        let (losses, weights) = (random(40, 5), random(40, 6));
        let sum: f64 = wide(&losses).iter().zip(wide(&weights)).map(|(loss, weight)| weight * loss).sum();
        let seen = RefCell::new(vec![]);
        on.run([&losses], 0, |device, [losses], _| {
            let mut memory = Memory::new(device, RATE);
            let weighted = |i: usize| (losses.slice(i..i + 1), f64::from(weights[i]));
            let weighted: Vec<Loss<'_>> = (0..40).map(weighted).collect();
            memory.add_losses(device, &[(losses, 3.0)], Accumulate::Replace);
            memory.add_losses(device, &weighted, Accumulate::Replace);
            memory.add_losses(device, &weighted, Accumulate::Add);
            seen.borrow_mut().push(memory.state());
        });
        let StepState { loss, refused, .. } = same(seen);
        assert!((loss - 2.0 * sum).abs() < 1e-12 && refused == 0, "{loss} against twice {sum}");
    }

    /// Weights and history stay as they are, also in the iterations that follow before the host has noticed.
    fn no_update_follows_a_loss_that_is_not_finite(on: &TestDevice) {
        let (dw, start, params) = (random(5000, 1), random(10_000, 2), [(5000, 1.0, 0.1)]);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let after = on.run_in_place([&dw, &[1.0, bad]], &start, |device, [dw, losses], mut out| {
                let mut memory = Memory::new(device, RATE);
                memory.add_losses(device, &[(losses, 1.0)], Accumulate::Replace);
                memory.update_all(device, &RULE, &mut cut(&params, dw, out.reborrow()));
                memory.add_losses(device, &[(losses.slice(0..1), 1.0)], Accumulate::Replace);
                memory.update_some(device, &RULE, &mut cut(&params, dw, out.reborrow()), true);
                memory.update_some(device, &RULE, &mut cut(&params, dw, out), false);
                assert_eq!((memory.state().refused, memory.state().loss), (1, 1.0));
            });
            assert_same_bits(&after, &start);
            let after = on.run_in_place([&dw], &start, |device, [dw], out| {
                let mut memory = Memory::new(device, RATE);
                memory.update_all(device, &RULE, &mut cut(&params, dw, out));
            });
            assert!(after != start, "a sound one is done");
        }
    }
}

/// What every run saw.
fn same(seen: RefCell<Vec<StepState>>) -> StepState {
    let seen = seen.into_inner();
    assert!(seen.iter().all(|other| bytemuck::bytes_of(other) == bytemuck::bytes_of(&seen[0])), "{seen:?}");
    seen[0]
}

/// Whatever the method, and at addresses that do and do not suit packs.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_copies_of_weights_are_the_weights_in_bf16() {
    let device = crate::testing::gpu();
    for (method, len) in METHODS.iter().flat_map(|&method| [1, 2048, 70_003].map(|len| (method, len))) {
        for shift in [0, 1] {
            let (mut cursor, rule) = (tensor::Cursor::default(), Rule { method, ..RULE });
            let mut place = |format, len| cursor.take(format, len + shift).slice(shift..len + shift);
            let [dw, w] = [(); 2].map(|()| place(Format::F32, len));
            let history = place(Format::F32, method.histories() * len);
            let copy = place(Format::BF16, len);
            let mut arena = Arena::on(&device, cursor.end()).unwrap();
            arena.set(arena.all(), 0).unwrap();
            arena.repeat(dw, &random(len, 1)).unwrap();
            arena.repeat(w, &random(len, 2)).unwrap();
            let ([dw], [v, weights, copied]) = arena.lease([dw], [history, w, copy]).unwrap();
            let update = ParamUpdate { lr_mult: 0.5, decay: 0.02, dw, history: v, w: weights, copy: copied };
            Memory::new(&device, RATE).update_all(&device, &rule, &mut [update]);
            let weights = arena.read::<f32>(w).unwrap();
            assert_ne!(weights[..], random(len, 2)[..], "{method:?}");
            let rounded: Vec<Bf16> = weights.iter().map(|&weight| Bf16::from_f32(weight)).collect();
            assert!(arena.read::<Bf16>(copy).unwrap()[..] == rounded, "{method:?}, {len}, {shift}");
        }
    }
}

/// The host learns of a label out of range when it waits; until then nothing is learned from it.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_no_update_follows_a_label_out_of_range() {
    use crate::{AxisExtents, softmax};
    let device = Device::Cuda(tensor::cuda::probe().unwrap().open(0).unwrap());
    let floats = |values: &[f32]| {
        let span = Span { len: size_of_val(values), format: Format::F32, ..Span::default() };
        let mut arena = Arena::on(&device, span.len).unwrap();
        arena.repeat(span, values).unwrap();
        (arena, span)
    };
    let (e, options) = (AxisExtents { outer: 2, axis: 3, inner: 1 }, Default::default());
    let [(scores, scores_at), (labels, labels_at), (mut p, p_at), (mut loss, loss_at)] =
        [&[0.5; 6][..], &[1.0, 3.0], &[0.0; 7], &[0.0]].map(floats);
    let [(dw, dw_at), (mut v, v_at), (mut w, w_at)] = [&[1.0][..], &[2.0], &[3.0]].map(floats);
    let mut memory = Memory::new(&device, RATE);
    let (p, loss_out) = (p.view_mut(p_at.tagged(Format::U8)), loss.view_mut(loss_at));
    let (scores, labels) = (scores.view(scores_at), labels.view(labels_at));
    softmax::loss(&device, &e, &options, scores, labels, p, loss_out).unwrap();
    memory.add_losses(&device, &[(loss.view(loss_at), 1.0)], Accumulate::Replace);
    let (history, weights) = (v.view_mut(v_at), w.view_mut(w_at));
    let dw = dw.view(dw_at);
    let update = ParamUpdate { lr_mult: 1.0, decay: 0.1, dw, history, w: weights, copy: nothing() };
    memory.update_all(&device, &RULE, &mut [update]);
    device.check().unwrap();
    assert_eq!(memory.state().refused, 1);
    assert_eq!([v.read::<f32>(v_at).unwrap()[0], w.read::<f32>(w_at).unwrap()[0]], [2.0, 3.0]);
    assert_eq!(softmax::labels::device_fault(&device).unwrap().label, 3.0);
}
