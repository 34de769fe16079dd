//! What this crate's tests share: runs on several numbers of threads, and gradients by finite differences.

use tensor::{
    Accumulate, Cpu, Device, ViewMut,
    testing::{assert_close, random},
};

/// Rounding of a handful of operations per element.
pub(crate) const FEW_ROUNDINGS: f64 = 2e-6;

/// The result of `op`, which must not depend on the number of threads nor on what its output held before.
pub(crate) fn run(len: usize, op: impl Fn(&Device, ViewMut<'_>)) -> Vec<f32> {
    let on = |threads: usize| {
        let mut out = vec![f32::NAN; len];
        op(&Device::Cpu(Cpu::new(threads)), ViewMut::from(&mut out));
        out
    };
    let result = on(1);
    for threads in [2, 3] {
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert!(bits(&on(threads)) == bits(&result), "differs on {threads} threads");
    }
    result
}

/// As [`run`] for an operation that replaces or adds; checks that adding adds to what was there.
pub(crate) fn run_accumulating(len: usize, op: impl Fn(&Device, ViewMut<'_>, Accumulate)) -> Vec<f32> {
    let replaced = run(len, |device, out| op(device, out, Accumulate::Replace));
    let start = random(len, 99);
    let added = run(len, |device, mut out| {
        out.host().copy_from_slice(&start);
        op(device, out, Accumulate::Add);
    });
    let sum: Vec<f64> = start.iter().zip(&replaced).map(|(&a, &b)| f64::from(a) + f64::from(b)).collect();
    assert_close(&added, &sum, FEW_ROUNDINGS, "added to what was there");
    replaced
}

/// In double precision.
pub(crate) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// The gradient with respect to `x` of `sum of dy * forward(x)`, by central differences in double precision.
pub(crate) fn numeric_gradient(x: &[f32], dy: &[f32], forward: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let mut x = wide(x);
    let value = |x: &[f64]| -> f64 { forward(x).iter().zip(dy).map(|(y, &dy)| y * f64::from(dy)).sum() };
    (0..x.len())
        .map(|i| {
            let centre = x[i];
            x[i] = centre + STEP;
            let above = value(&x);
            x[i] = centre - STEP;
            let below = value(&x);
            x[i] = centre;
            (above - below) / (2.0 * STEP)
        })
        .collect()
}
