//! Every algorithm against the double-precision loops, over fixed and random geometries.

pub(super) mod reference;

use super::{ConvOp, Convolver, ProfileOptions, find, kernel_id, operand_lens, operands::slices, profiler};
use planner::{Bytes, Request};
use rand::RngExt;
use std::{sync::Arc, time::Duration};
use tensor::testing::{assert_close, random, sum_tolerance};
use tensor::{Arena, ConvGeometry, Cpu, Device, Format, Span, View, ViewMut};

/// The algorithms of the CPU for `op` on `g`.
pub(super) fn candidates(threads: usize, op: ConvOp, g: &ConvGeometry) -> Vec<Arc<dyn Convolver>> {
    let kernel = kernel_id(op, g, Format::F32);
    super::candidates(&Device::Cpu(Cpu::new(threads)), &kernel, g.n as u32).expect("a valid geometry")
}

/// The algorithm called `name`, if it applies.
pub(super) fn named(threads: usize, name: &str, op: ConvOp, g: &ConvGeometry) -> Option<Arc<dyn Convolver>> {
    find(&Device::Cpu(Cpu::new(threads)), op, *g, name).ok()
}

/// An arena of `bytes` bytes that are NaN.
fn unset(bytes: Bytes) -> Arena {
    let mut arena = Arena::new(bytes.0 as usize).unwrap();
    arena.set(arena.all(), 0xff).unwrap();
    arena
}

/// Runs `convolver` in a workspace of exactly the size it asked for, filled with NaN as is everything it may not read.
pub(super) fn run(
    convolver: &dyn Convolver,
    out: usize,
    (a, b): (&[f32], &[f32]),
    start: Option<&[f32]>,
) -> Vec<f32> {
    let mut arena = unset(convolver.facts().workspace);
    let mut workspace = arena.view_mut(Span::bytes(0, convolver.facts().workspace.0 as usize));
    let mut out = start.map_or_else(|| vec![f32::NAN; out], <[f32]>::to_vec);
    let to = ViewMut::of(&mut out);
    convolver.prepare(View::of(b), workspace.reborrow());
    let to = if start.is_some() { to.added() } else { to.replaced() };
    convolver.run([View::of(a), View::of(b)], to, workspace).unwrap();
    out
}

/// One sample and then the others, with what the algorithm has prepared for the others, while the filter is gone:
/// nothing that is not the same for all may depend on it, and nothing may be spoilt on the way.
fn check_sharing(name: &str, (op, g): (ConvOp, &ConvGeometry), (a, w): (&[f32], &[f32])) {
    let parts = [0..1, 1..g.n].into_iter().filter(|samples| !samples.is_empty());
    let ready = |samples: &std::ops::Range<usize>| named(2, name, op, &g.with_batch(samples.len())).unwrap();
    let parts: Vec<_> = parts.map(|samples| (ready(&samples), slices(op, g, &samples))).collect();
    let most = parts.iter().map(|(part, _)| part.facts().workspace).max().expect("a sample");
    let mut arena = unset(most);
    let bytes = |from: Bytes, to: Bytes| Span::bytes(from.0 as usize, (to.0 - from.0) as usize);
    let (last, _) = &parts[parts.len() - 1];
    let prepared = last.facts().prepared;
    last.prepare(View::of(w), arena.view_mut(bytes(Bytes(0), last.facts().workspace)));
    let gone = vec![f32::NAN; w.len()];
    for (part, [a_range, _, out_range]) in &parts {
        assert_eq!(part.facts().prepared, prepared);
        let (a, mut out) = (&a[a_range.clone()], vec![f32::NAN; out_range.len()]);
        arena.set(bytes(prepared, most), 0xff).unwrap();
        let workspace = arena.view_mut(bytes(Bytes(0), part.facts().workspace));
        let operands = [View::of(a), View::of(&gone)];
        part.run(operands, ViewMut::of(&mut out).replaced(), workspace).unwrap();
        let alone = run(&**part, out.len(), (a, w), None);
        assert!(out == alone, "{name} {op:?} {g:?}: sharing changes the result");
    }
}

#[test]
fn filters_are_prepared_where_they_are_transformed_as_a_whole() {
    let g = ConvGeometry::new([2, 3, 5, 5], 4, [3, 3]);
    let sharing = |op| -> Vec<String> {
        let candidates = candidates(2, op, &g).into_iter();
        let sharing = candidates.filter(|convolver| convolver.facts().prepared > Bytes(0));
        sharing.map(|convolver| convolver.facts().name.clone()).collect()
    };
    let expected = ["WINOGRAD_4X4", "FFT_TILING", "FFT_TILING_16"];
    assert_eq!(sharing(ConvOp::Forward), expected);
    assert_eq!(sharing(ConvOp::BackwardData), expected);
    assert!(sharing(ConvOp::BackwardFilter).is_empty());
}

/// Checks every operation that the algorithm called `name` supports on `g`: right, right when adding, the same on 1, 2
/// and 3 threads, and the same when micro-batches share what is prepared. Returns how many operations were checked.
pub(super) fn check(name: &str, g: &ConvGeometry, seed: u64) -> usize {
    g.validate().expect("a valid geometry");
    let mut checked = 0;
    for op in ConvOp::ALL {
        let Some(convolver) = named(2, name, op, g) else { continue };
        checked += 1;
        let [a, b, out] = operand_lens(op, g);
        let (a, b, start) = (random(a, seed), random(b, seed + 1), random(out, seed + 2));
        let mut reference = reference::direct(op, g, &a, &b);
        let tolerance =
            sum_tolerance(reference::terms(op, g)).max(4.0 * f64::from(convolver.facts().max_error));
        let what = format!("{name} {op:?} {g:?}");

        let replaced = run(&*convolver, out, (&a, &b), None);
        assert_close(&replaced, &reference, tolerance, &what);
        for threads in [1, 3] {
            let other = named(threads, name, op, g).expect("threads make no difference");
            assert!(run(&*other, out, (&a, &b), None) == replaced, "{what}: differs on {threads} threads");
        }
        if convolver.facts().prepared > Bytes(0) {
            check_sharing(name, (op, g), (&a, &b));
        }
        reference.iter_mut().zip(&start).for_each(|(sum, &start)| *sum += f64::from(start));
        let added = run(&*convolver, out, (&a, &b), Some(&start));
        assert_close(&added, &reference, tolerance, &format!("{what} added"));
    }
    checked
}

/// As [`check`] for every algorithm.
fn check_all(g: &ConvGeometry, seed: u64) -> usize {
    let mut names: Vec<String> = Vec::new();
    for convolver in ConvOp::ALL.into_iter().flat_map(|op| candidates(2, op, g)) {
        if !names.contains(&convolver.facts().name) {
            names.push(convolver.facts().name.clone());
        }
    }
    names.iter().map(|name| check(name, g, seed)).sum()
}

#[test]
fn strides_and_padding_may_be_far_larger_than_the_image() {
    let g = ConvGeometry::new([2, 3, 40, 40], 4, [3, 3]);
    let far = [(1 << 16, 0), (1 << 20, 3), (i32::MAX as usize, i32::MAX as usize)];
    let far = far.map(|(stride, pad)| g.stride([stride; 2]).pad([pad; 2]));
    // Taps that are as far apart, of which one meets the image.
    let small = ConvGeometry::new([1, 2, 5, 5], 3, [3, 3]);
    for g in far.into_iter().chain([small.dilation([1 << 20; 2]).pad([1 << 20; 2])]) {
        assert_eq!(check_all(&g, 7), 4, "operations of algorithms that apply to {g:?}");
    }
    // No phase of this stride meets a tap but nine, and the others are not looked at.
    let g = ConvGeometry::new([1, 1, 1 << 20, 1 << 20], 1, [3, 3]).stride([1 << 30; 2]).validate().unwrap();
    let implicit = named(2, "IMPLICIT_GEMM", ConvOp::BackwardData, &g).expect("it applies").facts().workspace;
    assert!(implicit < Bytes(4 << 20), "{implicit}");
}

#[test]
fn what_cannot_be_unrolled_in_any_memory_is_not_tried() {
    // 9 x 2^20 taps of 2^42 pixels.
    let g = ConvGeometry::new([1 << 20, 1 << 20, 2, 2], 1, [3, 3]).pad([1 << 10; 2]);
    assert!(named(2, "GEMM", ConvOp::BackwardData, &g.validate().unwrap()).is_none());
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
        check_all(&g, seed);
    }
}

/// Which few of the random ones are.
#[test]
fn filters_of_one_tap_are_right_with_strides_and_groups() {
    for (stride, groups) in [([1, 1], 1), ([1, 1], 2), ([2, 2], 1), ([3, 2], 2), ([1, 4], 3)] {
        let g = ConvGeometry::new([3, 4 * groups, 9, 11], 70 * groups, [1, 1]).stride(stride).groups(groups);
        assert_eq!(check("GEMM", &g, 5), 3);
    }
}

#[test]
fn what_is_measured_as_shared_is_a_part_of_the_call_of_those_that_prepare() {
    let g = ConvGeometry::new([4, 8, 12, 12], 16, [3, 3]).pad([1, 1]);
    let device = Device::Cpu(Cpu::new(2));
    let options = ProfileOptions { repeats: 1, at_least: Duration::ZERO, ..ProfileOptions::on(&device) };
    let mut profiler = profiler(&device, options);
    for op in ConvOp::ALL {
        for micro_batch in [4, 1] {
            let rows = profiler
                .measure(&Request::all(kernel_id(op, &g, Format::F32), micro_batch))
                .expect("a valid geometry");
            assert_eq!(rows.len(), candidates(2, op, &g).len());
            for row in rows {
                let prepared =
                    named(2, row.algorithm.as_str(), op, &g).expect("a known algorithm").facts().prepared;
                assert_eq!(row.shared_ms > 0.0, prepared > Bytes(0), "{op} {row:?}");
                assert!(row.shared_ms < row.time_ms, "{op} {row:?}");
            }
        }
    }
}

#[test]
fn a_processor_in_the_place_of_a_gpu_runs_nothing() {
    let (g, mut device) = (ConvGeometry::new([4, 8, 12, 12], 16, [3, 3]), Device::Cpu(Cpu::new(1)));
    let name = candidates(1, ConvOp::Forward, &g)[0].facts().name.clone();
    let found = |device: &Device| find(device, ConvOp::Forward, g, &name).is_ok();
    assert!(found(&device));
    device.set_format(Format::F32.in_order(tensor::AxisOrder::Nhwc));
    assert!(!found(&device));
}
