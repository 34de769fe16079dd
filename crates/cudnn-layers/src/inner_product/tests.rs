//! The three products against plain loops, both layouts of the weights, sizes around every block boundary.

use super::*;
use crate::bias;
use crate::testing::on_every_device;
use tensor::testing::{assert_close, random, sum_tolerance};

const SIZES: [[usize; 3]; 9] = [
    [1, 1, 1],
    [1, 40, 30],
    [3, 17, 5],
    [32, 100, 70],
    [5, 1030, 65],
    [33, 300, 513],
    [64, 800, 500],
    [200, 90, 50],
    [2, 2100, 70],
];

on_every_device! {
    fn products_are_the_definition(on: &TestDevice) {
        for [n, inputs, outputs] in SIZES {
            for transpose in [false, true] {
                let e = InnerProduct { n, inputs, outputs, transpose };
                let [x_len, w_len, y_len] = e.lens();
                let (x, w) = (random(x_len, 1), random(w_len, 2));
                let (dy, b) = (random(y_len, 3), random(outputs, 4));
                let (mut y, mut dx) = (vec![0.0; y_len], vec![0.0; x_len]);
                let (mut dw, mut db) = (vec![0.0; w_len], vec![0.0; outputs]);
                for (sample, o) in (0..n).flat_map(|sample| (0..outputs).map(move |o| (sample, o))) {
                    let gradient = f64::from(dy[sample * outputs + o]);
                    db[o] += gradient;
                    y[sample * outputs + o] = f64::from(b[o]);
                    for i in 0..inputs {
                        let at = if transpose { i * outputs + o } else { o * inputs + i };
                        let (x, w) = (f64::from(x[sample * inputs + i]), f64::from(w[at]));
                        y[sample * outputs + o] += x * w;
                        dx[sample * inputs + i] += gradient * w;
                        dw[at] += gradient * x;
                    }
                }
                let out = on.run([&x, &w, &b], y.len(), |device, [x, w, b], mut y| {
                    forward(device, &e, x, w, y.reborrow());
                    bias::forward_in_place(device, &e.rows(), b, false, y);
                });
                assert_close(&out, &y, sum_tolerance(inputs), &format!("y of {e:?}"));
                let out = on.run_accumulating([&dy, &w], dx.len(), |device, [dy, w], dx| {
                    backward_data(device, &e, dy, w, dx);
                });
                assert_close(&out, &dx, sum_tolerance(outputs), &format!("dx of {e:?}"));
                let out = on.run_accumulating([&x, &dy], dw.len(), |device, [x, dy], dw| {
                    backward_weights(device, &e, x, dy, dw);
                });
                assert_close(&out, &dw, sum_tolerance(n), &format!("dw of {e:?}"));
                let out = on.run_accumulating([&dy], outputs, |device, [dy], db| {
                    bias::backward(device, &e.rows(), None, dy, db);
                });
                assert_close(&out, &db, sum_tolerance(n), &format!("db of {e:?}"));
            }
        }
    }
}
