//! Every algorithm against the double-precision loops, over fixed and random geometries.

use super::cpu::{CpuAlgorithm, Operands, algorithms};
use super::{
    ConvOp, CpuProfiler, ProfileOptions, operand_lens, operands::slices, profile::kernel_id, reference,
};
use planner::{Profiler, Request};
use rand::RngExt;
use std::time::Duration;
use tensor::{
    Accumulate, Arena, ConvGeometry, Cpu, Cursor, Device, Format,
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
    let span = Cursor::default().take(Format::F32, len);
    let mut arena = Arena::new(span.len).unwrap();
    let workspace = arena.view_mut(span).into_host::<f32>();
    workspace.fill(f32::NAN);
    let mut out = start.map_or_else(|| vec![f32::NAN; operand_lens(op, g)[2]], <[f32]>::to_vec);
    let accumulate = if start.is_some() { Accumulate::Add } else { Accumulate::Replace };
    let operands = Operands { a, b, out: &mut out };
    let cpu = Cpu::new(threads);
    algorithm.prepare(&cpu, op, g, b, workspace);
    algorithm.run(&cpu, op, g, operands, accumulate, workspace);
    out
}

/// One sample and then the others, with what `algorithm` has prepared for the others, while the filter is gone: nothing
/// that is not the same for all may depend on it, and nothing may be spoilt on the way.
fn check_sharing(algorithm: &dyn CpuAlgorithm, (op, g): (ConvOp, &ConvGeometry), (a, w): (&[f32], &[f32])) {
    let parts = [0..1, 1..g.n].into_iter().filter(|samples| !samples.is_empty());
    let parts: Vec<_> = parts.map(|samples| (g.with_batch(samples.len()), slices(op, g, &samples))).collect();
    let len = |part: &ConvGeometry| algorithm.workspace_len(op, part, 2).expect("the algorithm applies");
    let most = parts.iter().map(|(part, _)| len(part)).max().expect("a sample");
    let span = Cursor::default().take(Format::F32, most);
    let mut arena = Arena::new(span.len).unwrap();
    let workspace = arena.view_mut(span).into_host::<f32>();
    let (cpu, prepared) = (Cpu::new(2), algorithm.prepared_len(op, g));
    workspace.fill(f32::NAN);
    let last = &parts[parts.len() - 1].0;
    algorithm.prepare(&cpu, op, last, w, &mut workspace[..len(last)]);
    let gone = vec![f32::NAN; w.len()];
    for (part, [a_range, _, out_range]) in &parts {
        assert_eq!(algorithm.prepared_len(op, part), prepared);
        let (a, mut out) = (&a[a_range.clone()], vec![f32::NAN; out_range.len()]);
        workspace[prepared..].fill(f32::NAN);
        let operands = Operands { a, b: &gone, out: &mut out };
        algorithm.run(&cpu, op, part, operands, Accumulate::Replace, &mut workspace[..len(part)]);
        let alone = run(algorithm, 2, (op, part), (a, w), None);
        assert!(out == alone, "{} {op:?} {part:?}: sharing changes the result", algorithm.name());
    }
}

#[test]
fn filters_are_prepared_where_they_are_transformed_or_turned_as_a_whole() {
    let g = ConvGeometry::new([2, 3, 5, 5], 4, [3, 3]);
    let sharing = |op| {
        let shares = |algorithm: &&&dyn CpuAlgorithm| algorithm.prepared_len(op, &g) > 0;
        algorithms().iter().filter(shares).map(|algorithm| algorithm.name()).collect::<Vec<_>>()
    };
    let expected = ["IMPLICIT_PRECOMP_GEMM", "WINOGRAD_2X2", "WINOGRAD_4X4", "FFT_TILING", "FFT_TILING_16"];
    assert_eq!(sharing(ConvOp::Forward), expected);
    assert_eq!(sharing(ConvOp::BackwardData), expected);
    assert!(sharing(ConvOp::BackwardFilter).is_empty());
}

/// Checks every operation that `algorithm` supports on `g`: right, right when adding, the same on 1, 2 and 3 threads, and
/// the same when micro-batches share what is prepared. Returns how many operations were checked.
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
        if algorithm.prepared_len(op, g) > 0 {
            check_sharing(algorithm, (op, g), (&a, &b));
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

#[test]
fn strides_and_padding_may_be_far_larger_than_the_image() {
    for (stride, pad) in [(1 << 16, 0), (1 << 20, 3), (i32::MAX as usize, i32::MAX as usize)] {
        let g = ConvGeometry::new([2, 3, 40, 40], 4, [3, 3]).stride([stride; 2]).pad([pad; 2]);
        let checked: usize = algorithms().iter().map(|&algorithm| check(algorithm, &g, 7)).sum();
        assert!(checked >= 5, "{checked} operations of algorithms apply to {g:?}");
    }
    // Two pixels and 2^21 taps, whose image has 3 rows: patches of all that lies between would take minutes.
    let far = 1 << 21;
    let g = ConvGeometry::new([1, 1, 3, 1], 1, [far, 1]).stride([far, 1]).pad([far, 0]).validate().unwrap();
    assert_eq!(algorithms()[0].workspace_len(ConvOp::Forward, &g, 2), None);
    // No phase of this stride meets a tap but nine, and the others are not looked at.
    let g = ConvGeometry::new([1, 1, 1 << 20, 1 << 20], 1, [3, 3]).stride([1 << 30; 2]).validate().unwrap();
    let implicit = algorithms()[0].workspace_len(ConvOp::BackwardData, &g, 2);
    assert!(implicit.is_some_and(|len| len < 1 << 20), "{implicit:?}");
}

#[test]
fn what_cannot_be_unrolled_in_any_memory_is_not_tried() {
    // 9 x 2^20 taps of 2^42 pixels.
    let g = ConvGeometry::new([1 << 20, 1 << 20, 2, 2], 1, [3, 3]).pad([1 << 10; 2]);
    let gemm = algorithms().iter().find(|algorithm| algorithm.name() == "GEMM").unwrap();
    assert_eq!(gemm.workspace_len(ConvOp::Forward, &g.validate().unwrap(), 2), None);
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

#[test]
fn what_is_measured_as_shared_is_a_part_of_the_call_of_those_that_prepare() {
    let g = ConvGeometry::new([4, 8, 12, 12], 16, [3, 3]).pad([1, 1]);
    let cpu = Cpu::new(2);
    let options = ProfileOptions::on(&Device::Cpu(cpu.clone()));
    let options = ProfileOptions { repeats: 1, at_least: Duration::ZERO, ..options };
    let mut profiler = CpuProfiler::new(cpu, options);
    for op in OPS {
        for micro_batch in [4, 1] {
            let rows = profiler
                .measure(&Request::all(kernel_id(op, &g, Format::F32), micro_batch))
                .expect("a valid geometry");
            assert_eq!(rows.len(), algorithms().len());
            for row in rows {
                let found = algorithms().iter().find(|each| each.name() == row.algorithm.as_str());
                let prepared = found.expect("a known algorithm").prepared_len(op, &g);
                assert_eq!(row.shared_ms > 0.0, prepared > 0, "{op} {row:?}");
                assert!(row.shared_ms < row.time_ms, "{op} {row:?}");
            }
        }
    }
}
