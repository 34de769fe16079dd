//! The policies against their formulas, evaluated by hand.

use crate::spec::{LearningRate, LrPolicy, Rampup};

const FIXED: LearningRate = LearningRate {
    base_lr: 0.1,
    policy: LrPolicy::Fixed,
    gamma: 0.0,
    power: 0.0,
    stepsize: 0,
    stepvalues: Vec::new(),
    min_lr: 0.0,
    rampup: None,
};

fn rates(rate: LearningRate, iterations: &[usize]) -> Vec<f32> {
    rates_of(&rate, iterations, 100)
}

fn rates_of(rate: &LearningRate, iterations: &[usize], max_iter: usize) -> Vec<f32> {
    iterations.iter().map(|&iteration| rate.rate(iteration, max_iter)).collect()
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
    assert_close(&rates(FIXED, &[0, 1_000_000]), &[0.1, 0.1]);
}

#[test]
fn step() {
    let policy = LearningRate { policy: LrPolicy::Step, gamma: 0.5, stepsize: 10, ..FIXED };
    assert_close(&rates(policy, &[0, 9, 10, 19, 20, 35]), &[0.1, 0.1, 0.05, 0.05, 0.025, 0.0125]);
}

#[test]
fn exp() {
    assert_close(
        &rates(LearningRate { policy: LrPolicy::Exp, gamma: 0.5, ..FIXED }, &[0, 1, 4]),
        &[0.1, 0.05, 0.00625],
    );
}

#[test]
fn inv() {
    // 1 + 0.25 · 12 = 4; 4^-1.5 = 1/8
    assert_close(
        &rates(LearningRate { policy: LrPolicy::Inv, gamma: 0.25, power: 1.5, ..FIXED }, &[0, 12]),
        &[0.1, 0.0125],
    );
}

#[test]
fn multistep() {
    let policy = LearningRate { policy: LrPolicy::Multistep, gamma: 0.5, stepvalues: vec![5, 8], ..FIXED };
    assert_close(&rates(policy, &[0, 4, 5, 7, 8, 1000]), &[0.1, 0.1, 0.05, 0.05, 0.025, 0.025]);
}

#[test]
fn poly() {
    let policy = LearningRate { policy: LrPolicy::Poly, power: 2.0, ..FIXED };
    assert_close(&rates(policy.clone(), &[0, 50, 90]), &[0.1, 0.025, 0.001]);
    // Behind the end the base would be negative, and its powers not numbers.
    assert_eq!(rates(policy.clone(), &[100, 150]), [0.0, 0.0]);
    assert_eq!(rates(LearningRate { policy: LrPolicy::Poly, power: 0.5, ..FIXED }, &[101]), [0.0]);
    assert_close(&rates_of(&policy, &[0, 50, 100, 150], 200), &[0.1, 0.05625, 0.025, 0.00625]);
}

#[test]
fn a_rate_does_not_fall_below_its_floor_and_poly_ends_there() {
    let floored = |policy| LearningRate { min_lr: 0.02, ..policy };
    let poly = floored(LearningRate { policy: LrPolicy::Poly, power: 2.0, ..FIXED });
    assert_close(&rates_of(&poly, &[0, 50, 100, 150], 100), &[0.1, 0.04, 0.02, 0.02]);
    let step = floored(LearningRate { policy: LrPolicy::Step, gamma: 0.5, stepsize: 1, ..FIXED });
    assert_close(&rates_of(&step, &[0, 1, 2, 3, 4], 100), &[0.1, 0.05, 0.025, 0.02, 0.02]);
}

#[test]
fn a_rate_that_rises_at_the_start_goes_on_as_if_it_had_not() {
    let rampup = Some(Rampup { rampup_lr: 0.02, interval: 4 });
    let policy = LearningRate { policy: LrPolicy::Step, gamma: 0.5, stepsize: 2, ..FIXED };
    let rate = LearningRate { rampup, ..policy };
    assert_close(
        &rates_of(&rate, &[0, 1, 2, 3, 4, 5, 6], 100),
        &[0.02, 0.025, 0.04, 0.065, 0.025, 0.025, 0.0125],
    );
}

#[test]
fn cosine_falls_to_its_floor() {
    let rate = LearningRate { policy: LrPolicy::Cosine, min_lr: 0.02, ..FIXED };
    // cos(π/3) = 1/2, cos(π/2) = 0
    assert_close(&rates_of(&rate, &[0, 20, 30, 60, 90], 60), &[0.1, 0.08, 0.06, 0.02, 0.02]);
}

#[test]
fn no_multiple_of_no_rate_is_a_rate() {
    for policy in [
        LearningRate { policy: LrPolicy::Exp, gamma: 1e30, ..FIXED },
        LearningRate { policy: LrPolicy::Step, gamma: 1e30, stepsize: 1, ..FIXED },
    ] {
        let rate = LearningRate { base_lr: 0.0, ..policy };
        assert_eq!(rates_of(&rate, &[0, 1, 1_000_000], 100), [0.0; 3]);
    }
}

#[test]
fn sigmoid() {
    let policy = LearningRate { policy: LrPolicy::Sigmoid, gamma: -(3f32.ln()), stepsize: 10, ..FIXED };
    // exp(γ) = 1/3: the rate is b/2 at 10, b · 3/4 one iteration before and b/4 one behind.
    assert_close(&rates(policy, &[9, 10, 11]), &[0.075, 0.05, 0.025]);
}
