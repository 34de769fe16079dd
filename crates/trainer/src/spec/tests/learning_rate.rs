//! The policies against their formulas, evaluated by hand.

use crate::spec::{LearningRate, LrPolicy};

fn rates(policy: LrPolicy, iterations: &[usize]) -> Vec<f32> {
    let rate = LearningRate { base_lr: 0.1, policy };
    iterations.iter().map(|&iteration| rate.rate(iteration)).collect()
}

#[track_caller]
fn assert_close(rates: &[f32], expected: &[f32]) {
    assert_eq!(rates.len(), expected.len());
    for (rate, expected) in rates.iter().zip(expected) {
        // One rounding to f32 of the result, a few of the parameters.
        assert!((rate - expected).abs() <= 4.0 * f32::EPSILON * expected.abs(), "{rate} is not {expected}");
    }
}

#[test]
fn fixed() {
    assert_close(&rates(LrPolicy::Fixed, &[0, 1_000_000]), &[0.1, 0.1]);
}

#[test]
fn step() {
    let policy = LrPolicy::Step { gamma: 0.5, stepsize: 10 };
    assert_close(&rates(policy, &[0, 9, 10, 19, 20, 35]), &[0.1, 0.1, 0.05, 0.05, 0.025, 0.0125]);
}

#[test]
fn exp() {
    assert_close(&rates(LrPolicy::Exp { gamma: 0.5 }, &[0, 1, 4]), &[0.1, 0.05, 0.00625]);
}

#[test]
fn nothing_times_an_infinite_factor_is_nothing() {
    let rate = LearningRate { base_lr: 0.0, policy: LrPolicy::Exp { gamma: 10.0 } };
    assert_eq!(rate.rate(1000), 0.0);
}

#[test]
fn inv() {
    // 1 + 0.25 · 12 = 4; 4^-1.5 = 1/8
    assert_close(&rates(LrPolicy::Inv { gamma: 0.25, power: 1.5 }, &[0, 12]), &[0.1, 0.0125]);
}

#[test]
fn multistep() {
    let policy = LrPolicy::Multistep { gamma: 0.5, stepvalues: vec![5, 8] };
    assert_close(&rates(policy, &[0, 4, 5, 7, 8, 1000]), &[0.1, 0.1, 0.05, 0.05, 0.025, 0.025]);
}

#[test]
fn poly() {
    let policy = LrPolicy::Poly { power: 2.0, max_iter: 100 };
    assert_close(&rates(policy.clone(), &[0, 50, 90]), &[0.1, 0.025, 0.001]);
    // Behind the end the base would be negative, and its powers not numbers.
    assert_eq!(rates(policy, &[100, 150]), [0.0, 0.0]);
    assert_eq!(rates(LrPolicy::Poly { power: 0.5, max_iter: 1 }, &[2]), [0.0]);
}

#[test]
fn sigmoid() {
    let policy = LrPolicy::Sigmoid { gamma: -(3f32.ln()), stepsize: 10 };
    // exp(γ) = 1/3: the rate is b/2 at 10, b · 3/4 one iteration before and b/4 one behind.
    assert_close(&rates(policy, &[9, 10, 11]), &[0.075, 0.05, 0.025]);
}
