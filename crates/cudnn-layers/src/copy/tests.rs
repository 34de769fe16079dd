//! Copies are exact.

use super::*;
use crate::testing::{run, run_accumulating};
use tensor::testing::random;

#[test]
fn copies_and_fills_are_exact() {
    let x = random(100_003, 1);
    let y = run_accumulating(x.len(), |device, y, accumulate| copy(device, (&x).into(), y, accumulate));
    assert_eq!(y, x);
    assert!(run(100_003, |device, y| fill(device, 1.5, y)).iter().all(|&y| y == 1.5));
}

/// Three blocks side by side, one of them of no width, and each read back.
#[test]
fn concat_and_its_gradient_are_inverse() {
    for (rows, widths) in [(1, [1, 0, 2]), (7, [3, 0, 5]), (3, [30_000, 0, 17])] {
        let stride: usize = widths.iter().sum();
        let parts: Vec<Vec<f32>> =
            widths.iter().zip(0..).map(|(width, seed)| random(rows * width, seed)).collect();
        let columns = |part: usize| {
            let offset = widths[..part].iter().sum();
            Columns { rows, stride, offset, width: widths[part] }
        };
        let whole = run(rows * stride, |device, mut y| {
            for (index, part) in parts.iter().enumerate() {
                into_columns(device, &columns(index), part.into(), y.reborrow());
            }
        });
        assert_eq!(whole[(rows - 1) * stride + widths[0]], parts[2][(rows - 1) * widths[2]]);
        for (index, part) in parts.iter().enumerate() {
            let back = run_accumulating(part.len(), |device, dx, accumulate| {
                from_columns(device, &columns(index), (&whole).into(), dx, accumulate);
            });
            assert_eq!(&back, part);
        }
    }
}

#[test]
#[should_panic(expected = "do not fit the matrix")]
fn columns_beyond_the_matrix_are_refused() {
    let columns = Columns { rows: 1, stride: 3, offset: 2, width: 2 };
    into_columns(&Device::cpu(), &columns, (&vec![0.0; 2]).into(), ViewMut::from(&mut vec![0.0; 3]));
}
