//! The update against Caffe's formulas, written out in double precision.

use super::{Solver, digits, head, layer, plain, solver, start};
use crate::spec::Regularization;

/// One parameter before and after an update, with the gradient that the update saw.
struct Step {
    lr_mult: f64,
    decay_mult: f64,
    gradient: Vec<f64>,
    before: [Vec<f64>; 2],
    after: [Vec<f64>; 2],
}

fn double(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// Weights and history of every trained parameter.
fn blobs(solver: &Solver) -> Vec<[Vec<f64>; 2]> {
    let spans = solver.running.params().filter_map(|(_, spans)| Some([spans.data, spans.history?]));
    spans.map(|spans| spans.map(|span| double(&solver.running.arena.read(span).unwrap()))).collect()
}

fn step(solver: &mut Solver) -> Vec<Step> {
    let before = blobs(solver);
    solver.step().unwrap();
    let gradient = |span| double(&solver.running.arena.read(span).unwrap());
    let trained = solver.running.params().filter_map(|(param, spans)| Some((param, gradient(spans.diff?))));
    trained
        .zip(before.into_iter().zip(blobs(solver)))
        .map(|((param, gradient), (before, after))| Step {
            lr_mult: f64::from(param.lr_mult),
            decay_mult: f64::from(param.decay_mult),
            gradient,
            before,
            after,
        })
        .collect()
}

/// Caffe: clip all gradients together, divide by `iter_size`, add the decay, then momentum.
fn check(solver: &mut Solver, steps: &[Step], rate: f64) {
    let spec = solver.spec();
    let squares: f64 = steps.iter().flat_map(|step| &step.gradient).map(|g| g * g).sum();
    let clip = spec.clip_gradients.map_or(1.0, |limit| (f64::from(limit) / squares.sqrt()).min(1.0));
    let (momentum, decay) = (f64::from(spec.momentum), f64::from(spec.weight_decay));
    for step in steps {
        let [w, v] = &step.before;
        for index in 0..w.len() {
            let penalty = match spec.regularization {
                Regularization::L2 => w[index],
                Regularization::L1 if w[index] == 0.0 => 0.0,
                Regularization::L1 => w[index].signum(),
            };
            let gradient =
                step.gradient[index] * clip / spec.iter_size as f64 + decay * step.decay_mult * penalty;
            let history = momentum * v[index] + rate * step.lr_mult * gradient;
            let expected = [w[index] - history, history];
            for (found, expected) in step.after.iter().zip(expected) {
                // A few roundings to single precision of numbers of this size.
                let tolerance = 4e-7 * expected.abs().max(1e-2);
                assert!(
                    (found[index] - expected).abs() <= tolerance,
                    "{} instead of {expected}",
                    found[index]
                );
            }
        }
    }
}

fn net() -> String {
    let mult = "param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }";
    let hidden = format!("{mult} inner_product_param {{ num_output: 6 weight_filler {{ type: 'xavier' }} }}");
    let frozen = "param { lr_mult: 0 } param { lr_mult: 0 } inner_product_param { num_output: 8
        weight_filler { type: 'xavier' } }";
    let inert = layer("InnerProduct", "frozen", "data", "frozen", frozen);
    format!(
        "{}{inert}{}{}",
        digits(4),
        layer("InnerProduct", "hidden", "frozen", "hidden", &hidden),
        head("hidden", 10)
    )
}

fn runs(fields: &str, rates: &[f64]) {
    let mut solver = start(solver(&net(), fields));
    let frozen = solver.parameter("frozen.0").unwrap().to_vec();
    for &rate in rates {
        let steps = step(&mut solver);
        assert_eq!(steps.len(), 4);
        check(&mut solver, &steps, rate);
    }
    assert_eq!(solver.parameter("frozen.0").unwrap(), frozen);
}

#[test]
fn momentum_decay_and_multipliers() {
    let fixed = "base_lr: 0.1 lr_policy: 'fixed'";
    let rates = [f64::from(0.1f32); 4];
    runs(fixed, &rates);
    runs(&format!("{fixed} momentum: 0.9"), &rates);
    runs(&format!("{fixed} momentum: 0.9 weight_decay: 0.05"), &rates);
    runs(&format!("{fixed} momentum: 0.5 weight_decay: 0.05 regularization_type: 'L1'"), &rates);
}

#[test]
fn clipping_and_iter_size() {
    let fields = "base_lr: 0.1 lr_policy: 'fixed' momentum: 0.9 weight_decay: 0.01";
    let rates = [f64::from(0.1f32); 4];
    runs(&format!("{fields} clip_gradients: 0.05"), &rates);
    runs(&format!("{fields} clip_gradients: 1e6"), &rates);
    runs(&format!("{fields} iter_size: 3"), &rates);
    runs(&format!("{fields} iter_size: 3 clip_gradients: 0.05"), &rates);
}

/// What the first update from no history makes of the weights is known in closed form.
#[test]
fn every_type_reads_its_own_fields() {
    let rate = f64::from(0.01f32);
    let of = |momentum: f64| 1.0 - f64::from(momentum as f32);
    let (decay, delta) = (f64::from(0.05f32), f64::from(0.001f32));
    type Expected<'a> = Box<dyn Fn(f64, f64) -> f64 + 'a>;
    let with_decay = |step: fn(f64, &[f64; 5]) -> f64| -> Expected<'_> {
        let known = [rate, delta, of(0.9), of(0.8), of(0.99)];
        Box::new(move |g: f64, w: f64| w - rate * step(g + decay * w, &known))
    };
    let cases: [(&str, Expected<'_>); 8] = [
        ("type: 'SGD' momentum: 0.9", with_decay(|g, _| g)),
        ("type: 'Nesterov' momentum: 0.9", with_decay(|g, [.., m, _, _]| g * (2.0 - m))),
        ("type: 'AdaGrad' delta: 0.001", with_decay(|g, [_, delta, ..]| g / (g.abs() + delta))),
        (
            "solver_type: RMSPROP delta: 0.001 rms_decay: 0.8",
            with_decay(|g, [_, delta, _, d, _]| g / (d.sqrt() * g.abs() + delta)),
        ),
        (
            "type: 'AdaDelta' delta: 0.001 momentum: 0.8",
            with_decay(|g, [_, delta, _, d, _]| g * (delta / (d * g * g + delta)).sqrt()),
        ),
        (
            "type: 'Adam' delta: 0.001 momentum: 0.9 momentum2: 0.99",
            with_decay(|g, [_, delta, .., d]| d.sqrt() * g / (d.sqrt() * g.abs() + delta)),
        ),
        (
            "type: 'AdamW' delta: 0.001 momentum: 0.9 momentum2: 0.99",
            Box::new(move |g, w| w - rate * (g / (g.abs() + delta) + decay * w)),
        ),
        ("type: 'SGD' larc: true larc_eta: 1e30 larc_policy: 'clip'", with_decay(|g, _| g)),
    ];
    for (fields, expected) in cases {
        let fields = format!("base_lr: 0.01 lr_policy: 'fixed' weight_decay: 0.05 {fields}");
        let mut solver = start(solver(&plain(4), &fields));
        let weights = |solver: &Solver| double(&solver.parameter("conv1.0").unwrap());
        let before = weights(&solver);
        solver.step().unwrap();
        let (param, spans) = solver.running.params().find(|(param, _)| param.name == "conv1.0").unwrap();
        let gradients = double(&solver.running.read_param(param, spans.diff.unwrap()).unwrap());
        for ((found, before), g) in weights(&solver).into_iter().zip(before).zip(gradients) {
            let expected = expected(g, before);
            assert!((found - expected).abs() <= 4e-7, "{fields}: {found} instead of {expected}");
        }
    }
}

/// The seven policies over five iterations; max_iter is 100. Rates from the formulas, by hand.
#[test]
fn learning_rate_policies() {
    let rates = |factors: [f64; 5]| factors.map(|factor| f64::from((f64::from(0.1f32) * factor) as f32));
    let power = |base: f64, exponent: f64| f64::from(base as f32).powf(exponent);
    let sigmoid = |i: f64| 1.0 / (1.0 + (-f64::from(-0.5f32) * (i - 2.0)).exp());
    let indices = [0.0f64, 1.0, 2.0, 3.0, 4.0];
    let cases = [
        ("lr_policy: 'fixed'", [1.0; 5]),
        ("lr_policy: 'step' gamma: 0.5 stepsize: 2", [1.0, 1.0, 0.5, 0.5, 0.25]),
        ("lr_policy: 'exp' gamma: 0.5", [1.0, 0.5, 0.25, 0.125, 0.0625]),
        ("lr_policy: 'inv' gamma: 0.25 power: 2", indices.map(|i: f64| (1.0 + 0.25 * i).powi(-2))),
        (
            "lr_policy: 'multistep' gamma: 0.1 stepvalue: 1 stepvalue: 4",
            [1.0, power(0.1, 1.0), power(0.1, 1.0), power(0.1, 1.0), power(0.1, 2.0)],
        ),
        ("lr_policy: 'poly' power: 2", indices.map(|i: f64| (1.0 - i / 100.0).powi(2))),
        ("lr_policy: 'fixed' rampup_interval: 4", [0.0, 0.0625, 0.25, 0.5625, 1.0]),
        ("lr_policy: 'sigmoid' gamma: -0.5 stepsize: 2", indices.map(sigmoid)),
        ("lr_policy: 'cosine'", indices.map(|i| (1.0 + (std::f64::consts::PI * i / 100.0).cos()) / 2.0)),
        ("lr_policy: 'step' gamma: 0.5 stepsize: 3 warmup_iter: 4", [0.0, 0.25, 0.5, 0.75, 0.5]),
    ];
    for (policy, factors) in cases {
        runs(&format!("base_lr: 0.1 momentum: 0.9 weight_decay: 0.01 {policy}"), &rates(factors));
    }
}

/// The rate is inside the history: when it falls to zero, momentum carries the weights on by the old steps.
#[test]
fn the_history_keeps_the_rate_of_its_time() {
    let mut solver = start(solver(&net(), "base_lr: 0.1 lr_policy: 'fixed' momentum: 0.5"));
    let first = step(&mut solver);
    solver.training.spec.learning_rate.base_lr = 0.0;
    let second = step(&mut solver);
    for (first, second) in first.iter().zip(&second) {
        for (before, after) in first.after[1].iter().zip(&second.after[1]) {
            assert!((after - before / 2.0).abs() <= 1e-9);
        }
    }
}
