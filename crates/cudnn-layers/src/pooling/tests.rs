//! Both poolings against plain loops over fixed and random geometries, ties and special values included.

use super::*;
use crate::testing::{FEW_ROUNDINGS, TestDevice, assert_same_bits, on_every_device, rectified};
use rand::RngExt;
use tensor::testing::{assert_close, random};
use tensor::{Format, Rounding};

fn pool(shape: [usize; 4], window: [usize; 2], stride: [usize; 2], pad: [usize; 2]) -> PoolGeometry {
    let [n, c, h, w] = shape;
    PoolGeometry { n, c, h, w, window, pad, stride, rounding: Rounding::Ceil }.validate().expect("valid")
}

/// Far beyond any image of these tests.
const FAR: usize = 1 << 28;

/// Fixed geometries for every path, then random ones.
fn geometries() -> Vec<PoolGeometry> {
    let mut all = vec![
        pool([2, 3, 55, 55], [3, 3], [2, 2], [0, 0]),
        pool([1, 4, 112, 112], [3, 3], [2, 2], [0, 0]),
        pool([2, 2, 7, 7], [7, 7], [1, 1], [0, 0]),
        pool([1, 3, 20, 30], [20, 30], [1, 1], [0, 0]), // more taps than a byte holds
        pool([1, 2, 5, 300], [3, 2], [1, 3], [1, 1]),   // several blocks of columns
        pool([1, 1, 9, 150], [3, 5], [2, 40], [2, 4]),  // a stride too wide for runs
        pool([70, 1, 33, 33], [2, 2], [2, 2], [1, 1]),  // several tasks
        pool([1, 1, 1, 1], [1, 1], [1, 1], [0, 0]),
        pool([2, 3, 13, 14], [3, 3], [2, 2], [2, 1]),
        pool([1, 2, 57, 56], [3, 3], [2, 2], [1, 0]),
        pool([3, 2, 21, 16], [2, 2], [2, 2], [0, 1]),
        pool([2, 2, 20, 23], [9, 7], [4, 3], [3, 2]), // large windows
        pool([1, 2, 40, 37], [16, 17], [5, 6], [4, 0]), // and more taps than a byte holds
        pool([1, 2, 5, 5], [1 + FAR, 1], [FAR, 1], [FAR, 0]), // windows and padding far beyond the image
        pool([1, 2, 20, 5], [1, 1 + FAR], [1, FAR], [0, FAR]),
    ];
    // Strides whose product is no number of 64 bits.
    let far = PoolGeometry {
        stride: [1 << 30; 2],
        rounding: Rounding::Floor,
        ..pool([1, 2, 9, 9], [8, 8], [1, 1], [0, 0])
    };
    all.extend(far.validate());
    let mut rng = tensor::rng::stream(5, 0);
    while all.len() < 60 {
        let mut pair = |from: usize, to: usize| [rng.random_range(from..to), rng.random_range(from..to)];
        let ([n, c], [h, w]) = (pair(1, 4), pair(1, 30));
        let (window, stride, pad) = (pair(1, 6), pair(1, 5), pair(0, 3));
        let rounding = if all.len().is_multiple_of(3) { Rounding::Floor } else { Rounding::Ceil };
        let geometry = PoolGeometry { n, c, h, w, window, pad, stride, rounding };
        all.extend(geometry.validate());
    }
    all
}

/// The pixels under a window, as indices into `x`, and the number of pixels with padding.
fn window(g: &PoolGeometry, y_index: usize) -> (Vec<usize>, usize) {
    let (out_h, out_w) = (g.out_h(), g.out_w());
    let (plane, p, q) = (y_index / (out_h * out_w), y_index / out_w % out_h, y_index % out_w);
    let range = |axis: usize, image: usize, out: usize| {
        let start = (out * g.stride[axis]) as isize - g.pad[axis] as isize;
        let end = (start + g.window[axis] as isize).min((image + g.pad[axis]) as isize);
        (start, end)
    };
    let ((top, bottom), (left, right)) = (range(0, g.h, p), range(1, g.w, q));
    let size = ((bottom - top) * (right - left)) as usize;
    let inside = |from: isize, to: isize, image: usize| from.max(0) as usize..(to.max(0) as usize).min(image);
    let columns = inside(left, right, g.w);
    let pixels = inside(top, bottom, g.h)
        .flat_map(|row| columns.clone().map(move |column| (plane * g.h + row) * g.w + column))
        .collect();
    (pixels, size)
}

/// The first largest pixel, if any is larger than negative infinity, or the last NaN.
fn winner(x: &[f32], pixels: &[usize]) -> Option<usize> {
    let mut best = (f32::NEG_INFINITY, None);
    for &pixel in pixels {
        if x[pixel] > best.0 || x[pixel].is_nan() {
            best = (x[pixel], Some(pixel));
        }
    }
    best.1
}

/// Few distinct values, so that there are ties in nearly every window; with NaNs and infinities if `special`.
fn image(g: &PoolGeometry, special: bool) -> Vec<f32> {
    let value = |x: &f32| match (x * 4.0).round() {
        -4.0 if special => f32::NAN,
        value if special && value < 2.0 => f32::NEG_INFINITY,
        4.0 if special => f32::INFINITY,
        value => value,
    };
    random(g.x_len(), 1).iter().map(value).collect()
}

/// Elements as bits: NaNs, which equal nothing, and the bytes of a mask.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// `y` and the winners, whose bytes end within an element.
fn forward_with_mask(on: &TestDevice, g: &PoolGeometry, x: &[f32], relu: bool) -> [Vec<f32>; 2] {
    let mut y = on.run([x], g.y_len() + mask(g).bytes().div_ceil(4), |device, [x], mut out| {
        let y = out.take(Format::F32, g.y_len());
        forward_max(device, g, x, (None, relu), y, out);
    });
    let winners = y.split_off(g.y_len());
    [y, winners]
}

on_every_device! {
    fn the_first_maximum_wins_and_gets_the_gradient(on: &TestDevice) {
        for (g, special) in geometries().into_iter().flat_map(|g| [(g, false), (g, true)]) {
            let (x, dy) = (image(&g, special), random(g.y_len(), 2));
            let (mut expected, mut gradient) = (vec![], vec![0.0; x.len()]);
            for (index, &dy) in dy.iter().enumerate() {
                let best = winner(&x, &window(&g, index).0);
                expected.push(best.map_or(f32::NEG_INFINITY, |best| x[best]));
                best.iter().for_each(|&best| gradient[best] += f64::from(dy));
            }
            let [y, winners] = forward_with_mask(on, &g, &x, false);
            assert_same_bits(&y, &expected);
            let dx = on.run_accumulating([&winners, &dy], x.len(), |device, [winners, dy], dx| {
                backward_max(device, &g, winners, dy, dx);
            });
            assert_close(&dx, &gradient, FEW_ROUNDINGS, &format!("maximum dx of {g:?}"));
        }
    }

    fn a_fused_relu_is_the_relu_that_follows(on: &TestDevice) {
        for (g, special) in geometries().into_iter().flat_map(|g| [(g, false), (g, true)]) {
            let (x, dy) = (image(&g, special), random(g.y_len(), 2));
            let [apart, winners] = forward_with_mask(on, &g, &x, false);
            let [fused, fused_winners] = forward_with_mask(on, &g, &x, true);
            assert_eq!(bits(&fused), bits(&rectified(&apart)), "{g:?}");
            let passed: Vec<f32> =
                apart.iter().zip(&dy).map(|(&y, &dy)| if y > 0.0 { dy } else { 0.0 }).collect();
            let [dx, expected] = [(&fused_winners, &dy), (&winners, &passed)].map(|(winners, dy)| {
                on.run([winners, dy], x.len(), |device, [winners, dy], dx| {
                    backward_max(device, &g, winners, dy, dx.replaced());
                })
            });
            assert_eq!(dx, expected, "{g:?}");
        }
    }

    fn a_bias_is_the_bias_that_comes_before(on: &TestDevice) {
        for (g, relu) in geometries().into_iter().flat_map(|g| [(g, false), (g, true)]) {
            // So large that sums of different pixels are rounded to the same.
            let (x, bias) = (image(&g, true), random(g.c, 7).iter().map(|b| b * 3e7).collect::<Vec<_>>());
            let biased: Vec<f32> = x.iter().enumerate().map(|(i, x)| x + bias[i / (g.h * g.w) % g.c]).collect();
            let [expected, expected_winners] = forward_with_mask(on, &g, &biased, relu);
            let mut y = on.run([&x, &bias], g.y_len() + mask(&g).bytes().div_ceil(4), |device, [x, bias], mut out| {
                let y = out.take(Format::F32, g.y_len());
                forward_max(device, &g, x, (Some(bias), relu), y, out);
            });
            let winners = y.split_off(g.y_len());
            assert_same_bits(&y, &expected);
            assert_eq!(bits(&winners), bits(&expected_winners), "{g:?}");
        }
    }

    fn masks_are_the_same_on_every_device(on: &TestDevice) {
        for g in geometries() {
            let x = image(&g, true);
            let [_, winners] = forward_with_mask(on, &g, &x, false);
            let [_, expected] = forward_with_mask(&TestDevice::Cpu, &g, &x, false);
            assert_eq!(bits(&winners), bits(&expected), "{g:?}");
        }
    }

    fn averages_divide_by_the_clipped_window_and_spread_back(on: &TestDevice) {
        for g in geometries() {
            let (x, dy) = (random(g.x_len(), 1), random(g.y_len(), 2));
            let (mut expected, mut gradient) = (vec![], vec![0.0; x.len()]);
            for (index, &dy) in dy.iter().enumerate() {
                let (pixels, size) = window(&g, index);
                expected.push(pixels.iter().map(|&pixel| f64::from(x[pixel])).sum::<f64>() / size as f64);
                pixels.iter().for_each(|&pixel| gradient[pixel] += f64::from(dy) / size as f64);
            }
            let y = on.run([&x], g.y_len(), |device, [x], y| forward_average(device, &g, x, y));
            assert_close(&y, &expected, FEW_ROUNDINGS, &format!("average of {g:?}"));
            let dx = on.run_accumulating([&dy], x.len(), |device, [dy], dx| {
                backward_average(device, &g, dy, dx);
            });
            assert_close(&dx, &gradient, FEW_ROUNDINGS, &format!("average dx of {g:?}"));
        }
    }

    fn nan_wins_and_negative_infinity_has_no_winner(on: &TestDevice) {
        let g = pool([1, 1, 2, 4], [2, 2], [2, 2], [0, 0]);
        let inf = f32::NEG_INFINITY;
        let x = [1.0, f32::NAN, inf, inf, 5.0, 2.0, inf, inf];
        let [y, winners] = forward_with_mask(on, &g, &x, false);
        assert!(y[0].is_nan() && y[1] == inf);
        let dx = on.run([&winners, &[1.0, 1.0]], 8, |device, [winners, dy], dx| {
            backward_max(device, &g, winners, dy, dx.replaced());
        });
        assert_eq!(dx, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }
}

#[test]
fn winners_take_a_byte_each() {
    let g = pool([2, 3, 55, 55], [3, 3], [2, 2], [0, 0]);
    assert_eq!(mask(&g), Space::of::<u8>(2 * 3 * 27 * 27));
    let large = pool([1, 1, 16, 16], [16, 16], [1, 1], [0, 0]);
    assert_eq!(mask(&large), Space::of::<u32>(1));
}
