//! Geometries at the borders of tiles, blocks of channels and blocks of tiles.

use super::{Nonfused, Pass, forward::Forward, layout::Problem};
use crate::conv::tests::{check, named, random_geometry, reference, run};
use crate::conv::{ConvOp, operand_lens};
use tensor::testing::{max_error, random};
use tensor::{Accumulate, ConvGeometry, Cpu};

/// With the number of operations that they have.
const ALL: [(&str, usize); 2] = [("WINOGRAD_4X4", 2), ("WINOGRAD_4X4_NONFUSED", 3)];

/// What `pass` makes of the operands on two threads.
fn execute(pass: &dyn Pass, operands: [&[f32]; 2], out: usize) -> Vec<f32> {
    let (mut out, mut workspace) = (vec![f32::NAN; out], vec![f32::NAN; pass.workspace_len(2)]);
    let cpu = Cpu::new(2);
    if pass.prepared_len() > 0 {
        pass.prepare(&cpu, operands[1], &mut workspace);
    }
    pass.run(&cpu, operands, (&mut out, Accumulate::Replace), &mut workspace);
    out
}

#[test]
fn images_at_the_borders_of_tiles() {
    for (n, image) in [(3, [13, 13]), (5, [7, 7]), (1, [56, 56]), (2, [1, 1]), (2, [3, 18]), (2, [9, 4])] {
        for pad in [[1, 1], [0, 0], [2, 2], [2, 0], [0, 1]] {
            let g = ConvGeometry::new([n, 3, image[0], image[1]], 5, [3, 3]).pad(pad);
            if g.validate().is_ok() {
                ALL.into_iter().for_each(|(name, ops)| assert_eq!(check(name, &g, 3), ops));
            }
        }
    }
}

#[test]
fn channels_at_the_borders_of_blocks() {
    for (c, k, groups) in [(16, 48, 1), (17, 49, 1), (33, 64, 1), (15, 31, 1), (34, 80, 2), (6, 3, 3)] {
        let g = ConvGeometry::new([2, c, 6, 9], k, [3, 3]).pad([1, 1]).groups(groups);
        ALL.into_iter().for_each(|(name, ops)| assert_eq!(check(name, &g, 5), ops));
    }
}

#[test]
fn geometries_outside_the_method_are_refused() {
    let mut rng = tensor::rng::stream(7, 0);
    for seed in 0..100 {
        let g = random_geometry(&mut rng);
        let applies = [g.r, g.s] == [3, 3] && g.stride == [1, 1] && g.dilation == [1, 1];
        for (name, ops) in ALL {
            let expected = match applies {
                false => 0,
                true if g.pad[0].max(g.pad[1]) > 2 => ops - 1,
                true => ops,
            };
            assert_eq!(check(name, &g, seed), expected);
        }
    }
}

/// Blocks of every size, and stage by stage for the whole micro-batch: each output is the same sum in the same order.
#[test]
fn blocks_do_not_change_a_bit_of_the_forward_pass() {
    let g = ConvGeometry::new([3, 20, 10, 7], 37, [3, 3]).pad([1, 1]);
    let [x, w, y] = operand_lens(ConvOp::Forward, &g);
    let (x, w) = (random(x, 1), random(w, 2));
    let pass = |block| {
        let problem = Problem::new(ConvOp::Forward, &g).expect("the method applies");
        Forward { problem, op: ConvOp::Forward, block }
    };
    let expected = execute(&Nonfused(pass(2)), [&x, &w], y);
    for block in 1..10 {
        assert!(execute(&pass(block), [&x, &w], y) == expected, "blocks of {block} rows of tiles");
    }
}

/// Prints the accuracy that `max_error` promises: `cargo test winograd::tests::accuracy -- --ignored --nocapture`.
#[test]
#[ignore = "measures; the tests above check what it found"]
fn accuracy() {
    for (layer, n, c, image, k) in [
        ("conv3", 1, 192, 13, 384),
        ("conv4", 1, 384, 13, 256),
        ("r64", 1, 64, 56, 64),
        ("r512", 2, 512, 7, 512),
    ] {
        let g = ConvGeometry::new([n, c, image, image], k, [3, 3]).pad([1, 1]);
        for op in [ConvOp::Forward, ConvOp::BackwardData, ConvOp::BackwardFilter] {
            let [a, b, out] = operand_lens(op, &g);
            let (a, b) = (random(a, 1), random(b, 2));
            let expected = reference::direct(op, &g, &a, &b);
            for (name, _) in ALL {
                let Some(convolver) = named(2, name, op, &g) else { continue };
                let error = max_error(&run(&*convolver, out, (&a, &b), None), &expected);
                println!("{layer} {op:?} {name} {error:.2e}");
            }
        }
    }
}
