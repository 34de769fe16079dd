//! Both poolings against plain loops over fixed and random geometries, ties and special values included.

use super::*;
use crate::testing::{FEW_ROUNDINGS, run, run_accumulating};
use rand::RngExt;
use tensor::{
    Rounding,
    testing::{assert_close, random},
};

fn pool(shape: [usize; 4], window: [usize; 2], stride: [usize; 2], pad: [usize; 2]) -> PoolGeometry {
    let [n, c, h, w] = shape;
    PoolGeometry { n, c, h, w, window, pad, stride, rounding: Rounding::Ceil }.validate().expect("valid")
}

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
    ];
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

/// The first largest pixel, if any is larger than negative infinity.
fn winner(x: &[f32], pixels: &[usize]) -> Option<usize> {
    let mut best = (f32::NEG_INFINITY, None);
    for &pixel in pixels {
        if x[pixel] > best.0 {
            best = (x[pixel], Some(pixel));
        }
    }
    best.1
}

#[test]
fn the_first_maximum_wins_and_gets_the_gradient() {
    for g in geometries() {
        // Few distinct values: ties in nearly every window.
        let x: Vec<f32> = random(g.x_len(), 1).iter().map(|x| (x * 4.0).round()).collect();
        let dy = random(g.y_len(), 2);
        let (mut expected, mut gradient) = (vec![], vec![0.0; x.len()]);
        for (index, &dy) in dy.iter().enumerate() {
            let best = winner(&x, &window(&g, index).0);
            expected.push(best.map_or(f32::NEG_INFINITY, |best| x[best]));
            best.iter().for_each(|&best| gradient[best] += f64::from(dy));
        }
        let y = run(g.y_len(), |device, y| forward_max(device, &g, (&x).into(), y, None));
        assert_eq!(y, expected, "{g:?}");
        let mask = run(mask_len(&g), |device, mut mask| {
            mask.host().fill(0.0); // spare bytes stay as they were
            let mut y = vec![f32::NAN; g.y_len()];
            forward_max(device, &g, (&x).into(), ViewMut::from(&mut y), Some(mask));
            assert_eq!(y, expected, "{g:?}");
        });
        let dx = run_accumulating(x.len(), |device, dx, accumulate| {
            backward_max(device, &g, (&mask).into(), (&dy).into(), dx, accumulate);
        });
        assert_close(&dx, &gradient, FEW_ROUNDINGS, "maximum dx");
    }
}

#[test]
fn averages_divide_by_the_clipped_window_and_spread_back() {
    for g in geometries() {
        let (x, dy) = (random(g.x_len(), 1), random(g.y_len(), 2));
        let (mut expected, mut gradient) = (vec![], vec![0.0; x.len()]);
        for (index, &dy) in dy.iter().enumerate() {
            let (pixels, size) = window(&g, index);
            expected.push(pixels.iter().map(|&pixel| f64::from(x[pixel])).sum::<f64>() / size as f64);
            pixels.iter().for_each(|&pixel| gradient[pixel] += f64::from(dy) / size as f64);
        }
        let y = run(g.y_len(), |device, y| forward_average(device, &g, (&x).into(), y));
        assert_close(&y, &expected, FEW_ROUNDINGS, &format!("average of {g:?}"));
        let dx = run_accumulating(x.len(), |device, dx, accumulate| {
            backward_average(device, &g, (&dy).into(), dx, accumulate);
        });
        assert_close(&dx, &gradient, FEW_ROUNDINGS, &format!("average dx of {g:?}"));
    }
}

#[test]
fn nan_wins_and_negative_infinity_has_no_winner() {
    let g = pool([1, 1, 2, 4], [2, 2], [2, 2], [0, 0]);
    let inf = f32::NEG_INFINITY;
    let x = vec![1.0, f32::NAN, inf, inf, 5.0, 2.0, inf, inf];
    let (mut y, mut mask, mut dx) = (vec![0.0; 2], vec![0.0; mask_len(&g)], vec![f32::NAN; 8]);
    let device = Device::cpu();
    forward_max(&device, &g, (&x).into(), ViewMut::from(&mut y), Some(ViewMut::from(&mut mask)));
    assert!(y[0].is_nan() && y[1] == inf);
    let dy = vec![1.0, 1.0];
    let out = ViewMut::from(&mut dx);
    backward_max(&device, &g, (&mask).into(), (&dy).into(), out, Accumulate::Replace);
    assert_eq!(dx, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn winners_take_a_byte_each() {
    let g = pool([2, 3, 55, 55], [3, 3], [2, 2], [0, 0]);
    assert_eq!(mask_len(&g), 2 * 3 * (27usize * 27).div_ceil(4));
    let large = pool([1, 1, 16, 16], [16, 16], [1, 1], [0, 0]);
    assert_eq!(mask_len(&large), 1);
}
