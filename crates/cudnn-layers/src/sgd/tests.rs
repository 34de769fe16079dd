//! Several updates against the formula in double precision.

use super::*;
use crate::testing::{FEW_ROUNDINGS, TestDevice, on_every_device, wide};
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

on_every_device! {
    fn updates_follow_caffe_s_order(on: &TestDevice) {
        for (len, regularization) in [
            (0, Regularization::L2),
            (1, Regularization::L2),
            (2048, Regularization::L1),
            (100_003, Regularization::L2),
            (100_003, Regularization::L1),
        ] {
            let options = Update { regularization, ..UPDATE };
            let (mut weights, dw) = (random(len, 1), random(len, 2));
            if let Some(weight) = weights.get_mut(len / 2) {
                *weight = 0.0;
            }
            let gradients = [1.0, 2.0, 3.0].map(|step| dw.iter().map(|&dw| dw * step).collect::<Vec<f32>>());
            let mut start = vec![0.0; len];
            start.extend_from_slice(&weights);
            let both = on.run_in_place(gradients.each_ref().map(Vec::as_slice), &start, |device, dw, out| {
                let (mut v, mut w) = out.split_at(len);
                for dw in dw {
                    update(device, &options, dw, v.reborrow(), w.reborrow());
                }
            });
            assert_close(&both, &three_updates(&options, &dw, &weights), FEW_ROUNDINGS, "history and weights");
        }
    }

    /// As many parameters of such lengths and rates as a deep net has.
    fn all_parameters_at_once_are_updated_as_one_by_one(on: &TestDevice) {
        const LENS: [usize; 5] = [64, 9408, 1, 0, 5001];
        let params: Vec<(usize, Update)> = (0..150)
            .map(|index| {
                let regularization = if index % 7 == 3 { Regularization::L1 } else { Regularization::L2 };
                let rate = 0.1 / (1 + index) as f32;
                (LENS[index % 5], Update { rate, decay: 0.01 * (index % 3) as f32, regularization, ..UPDATE })
            })
            .collect();
        let len: usize = params.iter().map(|&(len, _)| len).sum();
        let (dw, start) = (random(len, 1), random(2 * len, 2));
        let all = |in_one_call: bool| {
            on.run_in_place([&dw], &start, |device, [mut dw], out| {
                let (mut v, mut w) = out.split_at(len);
                let mut updates: Vec<ParamUpdate<'_>> = vec![];
                for &(len, update) in &params {
                    let (first, rest) = (dw.split_at(len), (v.split_at(len), w.split_at(len)));
                    updates.push(ParamUpdate { update, dw: first.0, v: rest.0.0, w: rest.1.0 });
                    (dw, v, w) = (first.1, rest.0.1, rest.1.1);
                }
                if in_one_call {
                    update_all(device, &mut updates);
                } else {
                    updates.into_iter().for_each(|ParamUpdate { update: options, dw, v, w }| {
                        update(device, &options, dw, v, w);
                    });
                }
            })
        };
        let together = all(true);
        assert_eq!(together, all(false));
        assert!(start.iter().zip(&together).all(|(before, after)| before != after), "every element changes");
    }

    fn sums_of_squares_are_accurate_and_always_the_same(on: &TestDevice) {
        for len in [0, 1, 100, 2048, 32_768, 32_769, 9_000_001] {
            let x = random(len, 3);
            let exact: f64 = wide(&x).iter().map(|x| x * x).sum();
            let sum = double(on, &[&x]);
            assert!((sum - exact).abs() <= 1e-6 * exact, "{sum} against {exact}");
            let twice = double(on, &[&x, &[], &[2.0], &x]);
            assert!((twice - (2.0 * exact + 4.0)).abs() <= 1e-6 * (exact + 4.0), "{twice} against twice {exact}");
        }
        assert_eq!(double(on, &[&[1e30; 10]]), f64::INFINITY);
    }
}

/// The sum of squares of `runs`, the same in every run.
fn double(on: &TestDevice, runs: &[&[f32]]) -> f64 {
    let sums = std::cell::RefCell::new(vec![]);
    on.run_on_slices(runs, &[], |device, runs, _| {
        sums.borrow_mut().push(sum_of_squares_all(device, runs));
    });
    let sums = sums.into_inner();
    assert!(sums.iter().all(|sum| sum.to_bits() == sums[0].to_bits()), "{sums:?}");
    sums[0]
}
