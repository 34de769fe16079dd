//! The share of survivors, independence of iterations, and that backward and every device draw forward's mask.

use super::*;
use crate::testing::{TestDevice, on_every_device};
use tensor::{Setting, testing::random};

/// A dropout whose iteration's number is not on a device yet.
#[derive(Clone, Copy)]
struct Case {
    ratio: f32,
    seed: u64,
    iteration: u64,
}

const CASE: Case = Case { ratio: 0.5, seed: 7, iteration: 3 };

impl Case {
    fn on(&self, device: &Device, run: impl FnOnce(&Dropout<'_>)) {
        let mut iteration = Setting::new(device).unwrap();
        iteration.set(self.iteration).unwrap();
        run(&Dropout { ratio: self.ratio, seed: self.seed, iteration: iteration.view() });
    }

    fn forward(&self, on: &TestDevice, x: &[f32]) -> Vec<f32> {
        on.run([x], x.len(), |device, [x], y| {
            self.on(device, |dropout| apply(device, dropout, Some(x), y.replaced()))
        })
    }

    fn mask(&self, on: &TestDevice, len: usize) -> Vec<bool> {
        self.forward(on, &vec![1.0; len]).iter().map(|&y| y != 0.0).collect()
    }
}

/// Four standard deviations of a binomial count.
fn assert_share(count: usize, len: usize, share: f64) {
    let deviation = (len as f64 * share * (1.0 - share)).sqrt();
    let distance = (count as f64 - len as f64 * share).abs();
    assert!(distance <= 4.0 * deviation, "{count} of {len} against a share of {share}");
}

on_every_device! {
    fn survivors_are_scaled_and_as_many_as_asked_for(on: &TestDevice) {
        let len = 200_000;
        for ratio in [0.0, 0.1, 0.5, 0.7] {
            let case = Case { ratio, ..CASE };
            let x = random(len, 1);
            let (y, mask) = (case.forward(on, &x), case.mask(on, len));
            for ((&x, &y), &survives) in x.iter().zip(&y).zip(&mask) {
                assert_eq!(y, if survives { x * (1.0 / (1.0 - ratio)) } else { 0.0 });
            }
            assert_share(mask.iter().filter(|&&survives| survives).count(), len, 1.0 - f64::from(ratio));
        }
    }

    /// Neighbours, powers of two apart, other iterations and other seeds agree in half of the places.
    fn masks_are_uncorrelated(on: &TestDevice) {
        let len = 200_000;
        let reference = CASE.mask(on, len);
        let agreement = |left: &[bool], right: &[bool]| left.iter().zip(right).filter(|(a, b)| a == b).count();
        for other in [
            Case { iteration: 4, ..CASE },
            Case { iteration: 2, ..CASE },
            Case { seed: 8, ..CASE },
            Case { seed: 3, iteration: 7, ..CASE },
        ] {
            assert_share(agreement(&reference, &other.mask(on, len)), len, 0.5);
        }
        for shift in [1, 2, 16, 1024, 4096, 65_536] {
            assert_share(agreement(&reference[shift..], &reference[..len - shift]), len - shift, 0.5);
        }
    }

    fn backward_is_the_same_map_in_and_out_of_place(on: &TestDevice) {
        let len = 100_003;
        let dy = random(len, 2);
        let dx = on.run_accumulating([&dy], len, |device, [dy], dx| {
            CASE.on(device, |dropout| apply(device, dropout, Some(dy), dx));
        });
        for ((&dx, &dy), survives) in dx.iter().zip(&dy).zip(CASE.mask(on, len)) {
            assert_eq!(dx, if survives { 2.0 * dy } else { 0.0 });
        }
        let in_place = on.run_in_place([], &dy, |device, [], dxy| {
            CASE.on(device, |dropout| apply(device, dropout, None, dxy.replaced()));
        });
        assert_eq!(in_place, dx);
    }

    fn every_device_draws_the_mask_of_the_cpu(on: &TestDevice) {
        for (ratio, seed) in [(0.5, 7), (0.3, u64::MAX), (0.999, 1 << 40)] {
            let case = Case { ratio, seed, iteration: 1 << 33 };
            assert_eq!(case.mask(on, 50_001), case.mask(&TestDevice::Cpu, 50_001));
        }
    }

    /// By the same formulas in Python: a training that is resumed draws the masks that it would have drawn.
    fn masks_stay_what_they_were(on: &TestDevice) {
        let first = |case: Case| case.mask(on, 64).iter().rev().fold(0, |bits, &bit| bits << 1 | u64::from(bit));
        let masks = [CASE, Case { ratio: 0.3, ..CASE }, Case { seed: 1 << 40, iteration: u64::MAX, ..CASE }].map(first);
        assert_eq!(masks, [0x6df0_b486_7f4d_bc7c, 0x7df0_f4ef_7fdf_fdfe, 0x962d_c7bc_2070_a5b2]);
    }
}
