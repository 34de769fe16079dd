//! The share of survivors, independence of iterations, and that backward draws forward's mask.

use super::*;
use crate::testing::{run, run_accumulating};
use tensor::testing::random;

const DROPOUT: Dropout = Dropout { ratio: 0.5, seed: 7, iteration: 3 };

fn mask(dropout: &Dropout, len: usize) -> Vec<bool> {
    let ones = vec![1.0; len];
    run(len, |device, y| forward(device, dropout, (&ones).into(), y)).iter().map(|&y| y != 0.0).collect()
}

/// Four standard deviations of a binomial count.
fn assert_share(count: usize, len: usize, share: f64) {
    let deviation = (len as f64 * share * (1.0 - share)).sqrt();
    let distance = (count as f64 - len as f64 * share).abs();
    assert!(distance <= 4.0 * deviation, "{count} of {len} against a share of {share}");
}

#[test]
fn survivors_are_scaled_and_as_many_as_asked_for() {
    let len = 200_000;
    for ratio in [0.0, 0.1, 0.5, 0.7] {
        let dropout = Dropout { ratio, ..DROPOUT };
        let x = random(len, 1);
        let y = run(len, |device, y| forward(device, &dropout, (&x).into(), y));
        let mask = mask(&dropout, len);
        for ((&x, &y), &survives) in x.iter().zip(&y).zip(&mask) {
            assert_eq!(y, if survives { x * dropout.scale() } else { 0.0 });
        }
        assert_share(mask.iter().filter(|&&survives| survives).count(), len, 1.0 - f64::from(ratio));
    }
}

/// Neighbours, powers of two apart, other iterations and other seeds agree in half of the places.
#[test]
fn masks_are_uncorrelated() {
    let len = 200_000;
    let reference = mask(&DROPOUT, len);
    let agreement = |left: &[bool], right: &[bool]| left.iter().zip(right).filter(|(a, b)| a == b).count();
    for other in [
        Dropout { iteration: 4, ..DROPOUT },
        Dropout { iteration: 2, ..DROPOUT },
        Dropout { seed: 8, ..DROPOUT },
        Dropout { seed: 3, iteration: 7, ..DROPOUT },
    ] {
        assert_share(agreement(&reference, &mask(&other, len)), len, 0.5);
    }
    for shift in [1, 2, 16, 1024, 4096, 65_536] {
        assert_share(agreement(&reference[shift..], &reference[..len - shift]), len - shift, 0.5);
    }
}

#[test]
fn backward_is_the_same_map_in_and_out_of_place() {
    let len = 100_003;
    let dy = random(len, 2);
    let dx = run_accumulating(len, |device, dx, accumulate| {
        backward(device, &DROPOUT, (&dy).into(), dx, accumulate);
    });
    for ((&dx, &dy), survives) in dx.iter().zip(&dy).zip(mask(&DROPOUT, len)) {
        assert_eq!(dx, if survives { 2.0 * dy } else { 0.0 });
    }
    let in_place = run(len, |device, mut dxy| {
        dxy.host().copy_from_slice(&dy);
        backward_in_place(device, &DROPOUT, dxy);
    });
    assert_eq!(in_place, dx);
}
