//! Dense copies, and blocks of columns there and back.

use super::*;
use crate::testing::on_every_device;
use tensor::{ViewMut, testing::random};

on_every_device! {
    fn copies_are_exact(on: &TestDevice) {
        for len in [0, 1, 2048, 4097, 100_003] {
            let x = random(len, 1);
            let y = on.run_accumulating([&x], len, |device, [x], y| copy(device, x, y));
            assert_eq!(y, x);
        }
    }

    /// Three blocks side by side, one of them of no width, and each read back.
    fn concat_and_its_gradient_are_inverse(on: &TestDevice) {
        for (rows, widths) in
            [(1, [1, 0, 2]), (7, [3, 0, 5]), (3, [30_000, 0, 17]), (13, [256, 0, 1024]), (257, [1, 0, 99])]
        {
            let stride: usize = widths.iter().sum();
            let parts: Vec<Vec<f32>> =
                widths.iter().zip(0..).map(|(width, seed)| random(rows * width, seed)).collect();
            let columns = |part: usize| {
                let offset = widths[..part].iter().sum();
                Columns { rows, stride, offset, width: widths[part] }
            };
            let operands = [&parts[0][..], &parts[1], &parts[2]];
            let whole = on.run(operands, rows * stride, |device, parts, mut y| {
                for (index, part) in parts.into_iter().enumerate() {
                    into_columns(device, &columns(index), part, y.reborrow().replaced());
                }
            });
            assert_eq!(whole[(rows - 1) * stride + widths[0]], parts[2][(rows - 1) * widths[2]]);
            for (index, part) in parts.iter().enumerate() {
                let back = on.run_accumulating([&whole], part.len(), |device, [whole], dx| {
                    from_columns(device, &columns(index), whole, dx);
                });
                assert_eq!(&back, part);
            }
        }
    }
}

#[test]
#[should_panic(expected = "do not fit the matrix")]
fn columns_beyond_the_matrix_are_refused() {
    let columns = Columns { rows: 1, stride: 3, offset: 2, width: 2 };
    let mut matrix = vec![0.0; 3];
    into_columns(&Device::cpu(), &columns, View::of(&[0.0f32; 2]), ViewMut::of(&mut matrix).replaced());
}
