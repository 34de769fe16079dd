//! The share of survivors, independence of iterations, and that backward and every device draw forward's mask.

use super::*;
use crate::testing::{TestDevice, on_every_device};
use tensor::testing::random;

const DROPOUT: Dropout = Dropout { ratio: 0.5, seed: 7, iteration: 3 };

fn mask(on: &TestDevice, dropout: &Dropout, len: usize) -> Vec<bool> {
    let ones = vec![1.0; len];
    on.run([&ones], len, |device, [x], y| forward(device, dropout, x, y)).iter().map(|&y| y != 0.0).collect()
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
            let dropout = Dropout { ratio, ..DROPOUT };
            let x = random(len, 1);
            let y = on.run([&x], len, |device, [x], y| forward(device, &dropout, x, y));
            let mask = mask(on, &dropout, len);
            for ((&x, &y), &survives) in x.iter().zip(&y).zip(&mask) {
                assert_eq!(y, if survives { x * dropout.scale() } else { 0.0 });
            }
            assert_share(mask.iter().filter(|&&survives| survives).count(), len, 1.0 - f64::from(ratio));
        }
    }

    /// Neighbours, powers of two apart, other iterations and other seeds agree in half of the places.
    fn masks_are_uncorrelated(on: &TestDevice) {
        let len = 200_000;
        let reference = mask(on, &DROPOUT, len);
        let agreement = |left: &[bool], right: &[bool]| left.iter().zip(right).filter(|(a, b)| a == b).count();
        for other in [
            Dropout { iteration: 4, ..DROPOUT },
            Dropout { iteration: 2, ..DROPOUT },
            Dropout { seed: 8, ..DROPOUT },
            Dropout { seed: 3, iteration: 7, ..DROPOUT },
        ] {
            assert_share(agreement(&reference, &mask(on, &other, len)), len, 0.5);
        }
        for shift in [1, 2, 16, 1024, 4096, 65_536] {
            assert_share(agreement(&reference[shift..], &reference[..len - shift]), len - shift, 0.5);
        }
    }

    fn backward_is_the_same_map_in_and_out_of_place(on: &TestDevice) {
        let len = 100_003;
        let dy = random(len, 2);
        let dx = on.run_accumulating([&dy], len, |device, [dy], dx, accumulate| {
            backward(device, &DROPOUT, dy, dx, accumulate);
        });
        for ((&dx, &dy), survives) in dx.iter().zip(&dy).zip(mask(on, &DROPOUT, len)) {
            assert_eq!(dx, if survives { 2.0 * dy } else { 0.0 });
        }
        let in_place =
            on.run_in_place([], &dy, |device, [], dxy| backward_in_place(device, &DROPOUT, dxy));
        assert_eq!(in_place, dx);
    }

    fn every_device_draws_the_mask_of_the_cpu(on: &TestDevice) {
        for (ratio, seed) in [(0.5, 7), (0.3, u64::MAX), (0.999, 1 << 40)] {
            let dropout = Dropout { ratio, seed, iteration: 1 << 33 };
            assert_eq!(mask(on, &dropout, 50_001), mask(&TestDevice::Cpu, &dropout, 50_001));
        }
    }
}
