//! Both regions against plain loops in double precision and finite differences.

use super::*;
use crate::testing::{FEW_ROUNDINGS, TestDevice, numeric_gradient, on_every_device, wide};
use tensor::testing::{assert_close, random};
use tensor::{Arena, Span};

const ACROSS: Lrn = Lrn { region: Region::AcrossChannels, size: 5, alpha: 0.5, beta: 0.75, k: 1.5 };
const WITHIN: Lrn = Lrn { region: Region::WithinChannel, size: 3, alpha: 0.5, beta: 0.75, k: 1.0 };

fn reference(lrn: &Lrn, [n, c, h, w]: [usize; 4], x: &[f64]) -> Vec<f64> {
    let near = |a: usize, b: usize| a.abs_diff(b) <= lrn.size / 2;
    let scaled = |i: usize| {
        let (sample, channel, row, column) = (i / (c * h * w), i / (h * w) % c, i / w % h, i % w);
        let index =
            |channel: usize, row: usize, column: usize| ((sample * c + channel) * h + row) * w + column;
        let square = |index: usize| x[index] * x[index];
        let (k, mean): (f32, f64) = match lrn.region {
            Region::AcrossChannels => {
                let near = (0..c).filter(|&other| near(other, channel));
                (lrn.k, near.map(|c| square(index(c, row, column))).sum::<f64>() / lrn.size as f64)
            }
            Region::WithinChannel => {
                let range =
                    |at: usize, end: usize| at.saturating_sub(lrn.size / 2)..(at + lrn.size / 2 + 1).min(end);
                let pixels = range(row, h).flat_map(|r| range(column, w).map(move |c| (r, c)));
                let sum: f64 = pixels.map(|(r, c)| square(index(channel, r, c))).sum();
                (1.0, sum / (lrn.size * lrn.size) as f64)
            }
        };
        let scale = f64::from(k) + f64::from(lrn.alpha) * mean;
        x[i] * scale.powf(-f64::from(lrn.beta))
    };
    (0..n * c * h * w).map(scaled).collect()
}

fn gradient(on: &TestDevice, lrn: &Lrn, shape: [usize; 4], operands: [&[f32]; 2]) -> Vec<f32> {
    let len = operands[0].len();
    on.run_accumulating(operands, len, |device, operands, dx| {
        let space = Span::bytes(0, scratch(lrn, len).bytes());
        let mut arena = Arena::on(device, space.len).unwrap();
        let (_, mut scratch) = arena.lease_all(&[], &[space]).unwrap();
        backward(device, lrn, shape, operands, dx, scratch.remove(0));
        device.check().unwrap();
    })
}

on_every_device! {
    fn forward_is_the_definition(on: &TestDevice) {
        for (lrn, shape) in [
            (ACROSS, [2, 7, 5, 3]),
            (ACROSS, [3, 11, 55, 55]),
            (ACROSS, [2, 131, 6, 7]), // enough channels to be cut into segments
            (Lrn { beta: 0.6, size: 3, ..ACROSS }, [1, 2, 40, 40]),
            (Lrn { size: 7, ..ACROSS }, [1, 64, 4, 5]),
            (Lrn { size: 255, ..ACROSS }, [1, 300, 3, 5]),
            (WITHIN, [2, 3, 6, 7]),
            (WITHIN, [9, 4, 40, 32]),
            (Lrn { beta: 1.0, size: 7, ..WITHIN }, [1, 1, 4, 2100]),
        ] {
            let x: Vec<f32> = random(shape.iter().product(), 1).iter().map(|x| 4.0 * x).collect();
            let y = on.run([&x], x.len(), |device, [x], y| forward(device, &lrn, shape, x, y));
            assert_close(&y, &reference(&lrn, shape, &wide(&x)), FEW_ROUNDINGS, &format!("{lrn:?}"));
        }
    }

    fn backward_agrees_with_finite_differences(on: &TestDevice) {
        for (lrn, shape) in [
            (ACROSS, [2, 7, 2, 3]),
            (ACROSS, [1, 53, 1, 2]),
            (Lrn { size: 3, ..ACROSS }, [1, 9, 1, 5]),
            (Lrn { size: 1, ..ACROSS }, [1, 8, 1, 1]),
            (Lrn { size: 7, ..ACROSS }, [1, 12, 2, 1]),
            (Lrn { beta: 0.6, ..ACROSS }, [1, 3, 2, 2]),
            (Lrn { beta: 0.9, ..ACROSS }, [1, 34, 2, 1]),
            (WITHIN, [1, 2, 5, 6]),
            (Lrn { beta: 1.25, size: 5, ..WITHIN }, [2, 1, 4, 7]),
        ] {
            let len = shape.iter().product();
            let (x, dy) = (random(len, 1), random(len, 2));
            let dx = gradient(on, &lrn, shape, [&x, &dy]);
            let numeric = numeric_gradient(&x, &dy, |x| reference(&lrn, shape, x));
            assert_close(&dx, &numeric, FEW_ROUNDINGS, &format!("{lrn:?}"));
        }
    }

    /// Many blocks of pixels give what one pixel alone gives: columns do not mix.
    fn blocks_of_pixels_do_not_mix(on: &TestDevice) {
        let shape = [2, 6, 40, 50];
        let len = shape.iter().product();
        let (x, dy) = (random(len, 1), random(len, 2));
        let dx = gradient(on, &ACROSS, shape, [&x, &dy]);
        for pixel in [0, 999, 1023, 1024, 1999] {
            let column = |blob: &[f32]| -> Vec<f32> { (0..6).map(|c| blob[c * 2000 + pixel]).collect() };
            let alone = gradient(on, &ACROSS, [1, 6, 1, 1], [&column(&x), &column(&dy)]);
            assert_close(&alone, &wide(&column(&dx)), FEW_ROUNDINGS, "one pixel");
        }
    }
}

#[test]
fn the_fast_power_is_within_its_claimed_error() {
    let mut worst: f64 = 0.0;
    for step in 0..200_000 {
        let scale = 1.0f32 + step as f32 * 1e-3;
        let exact = f64::from(scale).powf(-0.75);
        worst = worst.max((f64::from(cpu::three_quarters(scale)) - exact).abs() / exact);
    }
    assert!(worst <= 2.5 * f64::from(f32::EPSILON), "{worst}");
}
