//! Several updates against the formula in double precision.

use super::*;
use crate::testing::{FEW_ROUNDINGS, run, wide};
use tensor::testing::{assert_close, random};

const UPDATE: Update =
    Update { rate: 0.1, momentum: 0.9, gradient_scale: 0.5, decay: 0.02, regularization: Regularization::L2 };

/// History and weights after three updates with growing gradients, one after the other.
fn three_updates(options: &Update, dw: &[f32], w: &[f32]) -> Vec<f64> {
    let (mut w, mut v) = (wide(w), vec![0.0; w.len()]);
    for step in 1..=3 {
        for ((w, v), &dw) in w.iter_mut().zip(&mut v).zip(dw) {
            let penalty = match options.regularization {
                Regularization::L2 => *w,
                Regularization::L1 => w.signum() * f64::from(u8::from(*w != 0.0)),
            };
            let gradient = f64::from(options.gradient_scale) * f64::from(dw) * f64::from(step)
                + f64::from(options.decay) * penalty;
            *v = f64::from(options.momentum) * *v + f64::from(options.rate) * gradient;
            *w -= *v;
        }
    }
    v.extend(w);
    v
}

#[test]
fn updates_follow_caffe_s_order() {
    for (len, regularization) in
        [(1, Regularization::L2), (100_003, Regularization::L2), (100_003, Regularization::L1)]
    {
        let options = Update { regularization, ..UPDATE };
        let (mut start, dw) = (random(len, 1), random(len, 2));
        start[len / 2] = 0.0;
        let both = run(2 * len, |device, mut out| {
            let (v, w) = out.host().split_at_mut(len);
            v.fill(0.0);
            w.copy_from_slice(&start);
            for step in 1..=3 {
                let dw: Vec<f32> = dw.iter().map(|&dw| dw * step as f32).collect();
                update(device, &options, (&dw).into(), (&mut *v).into(), (&mut *w).into());
            }
        });
        assert_close(&both, &three_updates(&options, &dw, &start), FEW_ROUNDINGS, "history and weights");
    }
}

#[test]
fn sums_of_squares_are_accurate_and_the_same_for_all_threads() {
    for len in [0, 1, 100, 32_768, 32_769, 9_000_001] {
        let x = random(len, 3);
        let exact: f64 = wide(&x).iter().map(|x| x * x).sum();
        let on = |threads| sum_of_squares(&Device::Cpu(tensor::Cpu::new(threads)), (&x).into());
        assert_eq!(on(1).to_bits(), on(3).to_bits());
        assert!((on(2) - exact).abs() <= 1e-6 * exact, "{} against {exact}", on(2));
    }
    let infinite = vec![1e30; 10];
    assert_eq!(sum_of_squares(&Device::cpu(), (&infinite).into()), f64::INFINITY);
}
