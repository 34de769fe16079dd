//! Geometries at the borders of tiles, blocks of channels and blocks of tiles.

use super::{
    FUSED_2X2, FUSED_4X4, NONFUSED_4X4, backward_filter::BackwardFilter, filter::Direction, forward::Forward,
    layout::Problem, minimal::F4,
};
use crate::conv::{
    ConvOp,
    cpu::{CpuAlgorithm, Operands},
    operand_lens, reference,
    tests::{check, random_geometry, run},
};
use std::marker::PhantomData;
use tensor::{
    Accumulate, ConvGeometry, Cpu,
    testing::{assert_close, max_error, random},
};

const ALL: [&dyn CpuAlgorithm; 3] = [FUSED_2X2, FUSED_4X4, NONFUSED_4X4];

#[test]
fn images_at_the_borders_of_tiles() {
    for (n, image) in [(3, [13, 13]), (5, [7, 7]), (1, [56, 56]), (2, [1, 1]), (2, [3, 18]), (2, [9, 4])] {
        for pad in [[1, 1], [0, 0], [2, 2], [2, 0], [0, 1]] {
            let g = ConvGeometry::new([n, 3, image[0], image[1]], 5, [3, 3]).pad(pad);
            if g.validate().is_ok() {
                ALL.into_iter().for_each(|algorithm| assert_eq!(check(algorithm, &g, 3), 3));
            }
        }
    }
}

#[test]
fn channels_at_the_borders_of_blocks() {
    for (c, k, groups) in [(16, 48, 1), (17, 49, 1), (33, 64, 1), (15, 31, 1), (34, 80, 2), (6, 3, 3)] {
        let g = ConvGeometry::new([2, c, 6, 9], k, [3, 3]).pad([1, 1]).groups(groups);
        ALL.into_iter().for_each(|algorithm| assert_eq!(check(algorithm, &g, 5), 3));
    }
}

#[test]
fn geometries_outside_the_method_are_refused() {
    let mut rng = tensor::rng::stream(7, 0);
    for seed in 0..100 {
        let g = random_geometry(&mut rng);
        let applies = [g.r, g.s] == [3, 3] && g.stride == [1, 1] && g.dilation == [1, 1];
        let expected = match applies {
            false => 0,
            true if g.pad[0].max(g.pad[1]) > 2 => 2,
            true => 3,
        };
        ALL.into_iter().for_each(|algorithm| assert_eq!(check(algorithm, &g, seed), expected));
    }
}

/// Blocks of every size, and stage by stage for the whole micro-batch: each output is the same sum in the same order.
#[test]
fn blocks_do_not_change_a_bit_of_the_forward_pass() {
    let g = ConvGeometry::new([3, 20, 10, 7], 37, [3, 3]).pad([1, 1]);
    let [x, w, y] = operand_lens(ConvOp::Forward, &g);
    let (x, w) = (random(x, 1), random(w, 2));
    let expected = run(NONFUSED_4X4, 2, (ConvOp::Forward, &g), (&x, &w), None);
    for block in 1..10 {
        let problem = Problem::forward(&g, 4).expect("the method applies");
        let pass =
            Forward::<F4, 4, 6> { transforms: PhantomData, problem, direction: Direction::Forward, block };
        let (mut out, mut workspace) = (vec![f32::NAN; y], vec![f32::NAN; pass.fused_len(2)]);
        pass.prepare(&Cpu::new(2), &w, &mut workspace);
        let operands = Operands { a: &x, b: &w, out: &mut out };
        pass.run_fused(&Cpu::new(2), operands, Accumulate::Replace, &mut workspace);
        assert!(out == expected, "blocks of {block} rows of tiles");
    }
}

/// Several blocks in one sum, and several sums.
#[test]
fn every_division_of_the_sum_over_tiles_is_right() {
    let g = ConvGeometry::new([3, 20, 10, 7], 37, [3, 3]).pad([1, 1]);
    let [x, dy, dw] = operand_lens(ConvOp::BackwardFilter, &g);
    let (x, dy) = (random(x, 1), random(dy, 2));
    let expected = reference::direct(ConvOp::BackwardFilter, &g, &x, &dy);
    for (block, sums) in [(1, 1), (2, 1), (4, 1), (9, 1), (1, 2), (2, 3), (2, 5), (1, 9)] {
        let problem = Problem::forward(&g, 4).expect("the method applies");
        let pass = BackwardFilter::<F4, 4, 6> { transforms: PhantomData, problem, block, sums };
        let (mut out, mut workspace) = (vec![f32::NAN; dw], vec![f32::NAN; pass.len(2)]);
        let operands = Operands { a: &x, b: &dy, out: &mut out };
        pass.run(&Cpu::new(2), operands, Accumulate::Replace, &mut workspace);
        assert_close(&out, &expected, 2e-5, &format!("{sums} sums over blocks of {block}"));
    }
}

/// Prints the accuracy that `max_error` promises: `cargo test winograd::tests::accuracy -- --ignored --nocapture`.
#[test]
#[ignore = "measures; the tests above check what it found"]
fn accuracy() {
    for (name, n, c, image, k) in [
        ("conv3", 1, 192, 13, 384),
        ("conv4", 1, 384, 13, 256),
        ("r64", 1, 64, 56, 64),
        ("r512", 2, 512, 7, 512),
    ] {
        let g = ConvGeometry::new([n, c, image, image], k, [3, 3]).pad([1, 1]);
        for op in [ConvOp::Forward, ConvOp::BackwardData, ConvOp::BackwardFilter] {
            let [a, b, _] = operand_lens(op, &g);
            let (a, b) = (random(a, 1), random(b, 2));
            let expected = reference::direct(op, &g, &a, &b);
            for algorithm in ALL {
                let error = max_error(&run(algorithm, 2, (op, &g), (&a, &b), None), &expected);
                println!("{name} {op:?} {} {error:.2e}", algorithm.name());
            }
        }
    }
}
