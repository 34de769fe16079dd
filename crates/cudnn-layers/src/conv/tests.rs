//! Every algorithm against the double-precision loops, over fixed and random geometries.

use super::cpu::{CpuAlgorithm, Operands, algorithms};
use super::{ConvOp, operand_lens, reference};
use rand::RngExt;
use tensor::{
    Accumulate, Arena, ConvGeometry, Cpu, Span,
    testing::{assert_close, random, sum_tolerance},
};

const OPS: [ConvOp; 3] = [ConvOp::Forward, ConvOp::BackwardData, ConvOp::BackwardFilter];

/// Runs `algorithm` in a workspace of exactly the size it asked for, filled with NaN as is everything it may not read.
pub(super) fn run(
    algorithm: &dyn CpuAlgorithm,
    threads: usize,
    (op, g): (ConvOp, &ConvGeometry),
    (a, b): (&[f32], &[f32]),
    start: Option<&[f32]>,
) -> Vec<f32> {
    let len = algorithm.workspace_len(op, g, threads).expect("the algorithm applies");
    let mut arena = Arena::new(len);
    let mut workspace = arena.view_mut(Span { offset: 0, len });
    workspace.host().fill(f32::NAN);
    let mut out = start.map_or_else(|| vec![f32::NAN; operand_lens(op, g)[2]], <[f32]>::to_vec);
    let accumulate = if start.is_some() { Accumulate::Add } else { Accumulate::Replace };
    let operands = Operands { a, b, out: &mut out };
    algorithm.run(&Cpu::new(threads), op, g, operands, accumulate, workspace.host());
    out
}

/// Checks every operation that `algorithm` supports on `g`: right, right when adding, and the same on 1, 2 and 3
/// threads. Returns how many operations were checked.
pub(super) fn check(algorithm: &dyn CpuAlgorithm, g: &ConvGeometry, seed: u64) -> usize {
    g.validate().expect("a valid geometry");
    let mut checked = 0;
    for op in OPS {
        if algorithm.workspace_len(op, g, 2).is_none() {
            continue;
        }
        checked += 1;
        let [a, b, out] = operand_lens(op, g);
        let (a, b, start) = (random(a, seed), random(b, seed + 1), random(out, seed + 2));
        let mut reference = reference::direct(op, g, &a, &b);
        let tolerance = sum_tolerance(reference::terms(op, g)).max(4.0 * f64::from(algorithm.max_error()));
        let what = format!("{} {op:?} {g:?}", algorithm.name());

        let replaced = run(algorithm, 2, (op, g), (&a, &b), None);
        assert_close(&replaced, &reference, tolerance, &what);
        for threads in [1, 3] {
            assert!(
                run(algorithm, threads, (op, g), (&a, &b), None) == replaced,
                "{what}: differs on {threads} threads"
            );
        }
        reference.iter_mut().zip(&start).for_each(|(sum, &start)| *sum += f64::from(start));
        assert_close(
            &run(algorithm, 2, (op, g), (&a, &b), Some(&start)),
            &reference,
            tolerance,
            &format!("{what} added"),
        );
    }
    checked
}

/// A random geometry of a few thousand multiplications: any stride, padding, dilation, groups, non-square.
pub(super) fn random_geometry(rng: &mut impl RngExt) -> ConvGeometry {
    loop {
        let groups = if rng.random_bool(0.25) { rng.random_range(2..4) } else { 1 };
        let mut pair =
            |range: std::ops::Range<usize>| [rng.random_range(range.clone()), rng.random_range(range)];
        let ([c, k], [h, w], filter) = (pair(1..20), pair(1..20), pair(1..6));
        let (pad, stride, dilation) = (pair(0..4), pair(1..4), pair(1..3));
        let n = rng.random_range(1..4);
        let g = ConvGeometry::new([n, c * groups, h, w], k * groups, filter);
        let g = g.pad(pad).stride(stride).dilation(dilation).groups(groups);
        if g.validate().is_ok() && g.flops() < 2e6 {
            return g;
        }
    }
}

#[test]
fn all_algorithms_agree_with_the_definition_on_random_geometries() {
    let mut rng = tensor::rng::stream(1, 0);
    for seed in 0..60 {
        let g = random_geometry(&mut rng);
        for algorithm in algorithms() {
            check(*algorithm, &g, seed);
        }
    }
}
