//! Every algorithm of cuDNN against the double-precision loops, and split against undivided, on a GPU.

mod engines;

use super::{convolver::transforming, gemm};
use crate::conv::error::is_unsupported;
use crate::conv::tests::{random_geometry, reference};
use crate::conv::verify::distances;
use crate::conv::{
    ConvError, ConvOp, Convolver, ProfileOptions, Runner, candidates, find, kernel_id, operand_lens, profiler,
};
use planner::{Bytes, Configuration, KernelId, Math, Measurement, Profiler, Request, Run};
use rand::RngExt;
use std::collections::BTreeMap;
use tensor::cuda::{Cuda, probe};
use tensor::testing::{distance_tolerance, max_error, random, sum_tolerance};
use tensor::{ALIGNMENT, Arena, AxisOrder, ConvGeometry, Device, Format, Out, Span, View, ViewMut};

fn cuda() -> Cuda {
    probe().unwrap().open(0).unwrap()
}

fn conv_profiler() -> Box<dyn Profiler + Send> {
    let device = Device::Cuda(cuda());
    profiler(&device, ProfileOptions::on(&device))
}

/// What `work` adds to `out`, or makes of so many elements, with copies of the operands, all memory that it may not
/// read full of NaN and a guard behind each buffer that it may write. Operands begin `shift` elements behind an aligned
/// address; the workspace is of so many bytes.
fn on_device(
    cuda: &Cuda,
    operands: [&[f32]; 2],
    out: Result<&[f32], usize>,
    workspace: usize,
    shift: usize,
    work: impl FnOnce([View<'_>; 2], Out<'_>, ViewMut<'_>),
) -> Vec<f32> {
    let mut end = 0;
    let mut place = |format: Format, len: usize, shift: usize| {
        let size = format.dtype.bytes();
        let span = Span { offset: end + shift * size, len: len * size, format };
        // At least one element more than is used: the guard.
        end = (span.end() + size).next_multiple_of(ALIGNMENT);
        span
    };
    let lens = [operands[0].len(), operands[1].len(), out.map_or_else(|len| len, <[f32]>::len)];
    let [a, b, out_span] = lens.map(|len| place(Format::F32, len, shift));
    let workspace = place(Format::U8, workspace, 0);
    let mut arena = Arena::unset(cuda.stream(), end).unwrap();
    arena.set(arena.all(), 0xff).unwrap();
    for (span, values) in [(a, Some(operands[0])), (b, Some(operands[1])), (out_span, out.ok())] {
        if let Some(values) = values {
            arena.fill(span, |to: &mut [f32]| to.copy_from_slice(values)).unwrap();
        }
    }
    let ([a, b], [to, workspace_view]) = arena.lease([a, b], [out_span, workspace]).unwrap();
    work([a, b], if out.is_ok() { to.added() } else { to.replaced() }, workspace_view);
    for span in [out_span, workspace] {
        let guard = Span::bytes(span.end(), 1);
        assert_eq!(*arena.read::<u8>(guard).unwrap(), [0xff], "written behind the end");
    }
    arena.read(out_span).unwrap().into_owned()
}

/// Elements from an aligned address to one that is only as aligned as engines ask for.
const SHIFT: usize = 4;

fn run(
    cuda: &Cuda,
    (op, convolver): (ConvOp, &dyn Convolver),
    operands: [&[f32]; 2],
    start: Option<&[f32]>,
    shift: usize,
) -> Vec<f32> {
    let len = operand_lens(op, &convolver.facts().geometry)[2];
    let workspace = convolver.facts().workspace.0 as usize;
    on_device(cuda, operands, start.ok_or(len), workspace, shift, |operands, out, workspace| {
        convolver.run(operands, out, workspace).unwrap();
    })
}

/// Geometries that cuDNN's fast algorithms apply to: stride 1, filters of 3x3 and 5x5 that keep the image's size.
fn smooth_geometry(rng: &mut impl RngExt) -> ConvGeometry {
    let mut extent = |range: std::ops::Range<usize>| rng.random_range(range);
    let filter = [1, 3, 3, 5][extent(0..4)];
    let g = ConvGeometry::new(
        [extent(1..5), 4 * extent(1..9), extent(7..30), extent(7..30)],
        4 * extent(1..9),
        [filter, filter],
    );
    g.pad([filter / 2, filter / 2])
}

/// Geometries that are products of matrices: filters of 1x1, with strides.
fn point_geometry(rng: &mut impl RngExt) -> ConvGeometry {
    let mut extent = |range: std::ops::Range<usize>| rng.random_range(range);
    let x = [extent(1..6), extent(1..40), extent(1..20), extent(1..20)];
    ConvGeometry::new(x, extent(1..40), [1, 1]).stride([extent(1..4), extent(1..4)])
}

/// The names of all algorithms for `op` but the engines that cuDNN suggests.
fn names(op: ConvOp) -> impl Iterator<Item = &'static str> {
    transforming(op).map(|(name, _)| name).chain(gemm::NAMES.map(|(name, _)| name))
}

/// What an algorithm did.
#[derive(Default)]
struct Seen {
    geometries: usize,
    worst: f64,
    /// How often the TF32 form gave the bits of the other, and how often it needed another workspace.
    same_as_fp32: usize,
    other_workspace: usize,
}

/// Checks `convolver`: right, right when adding, right at any address, and bit-equal every time if it says so. Returns
/// its result, its error, and what is wrong with it.
fn check(cuda: &Cuda, op: ConvOp, convolver: &dyn Convolver, seed: u64) -> (Vec<f32>, f64, Vec<String>) {
    let g = &convolver.facts().geometry;
    let [a, b, out] = operand_lens(op, g);
    let (a, b, start) = (random(a, seed), random(b, seed + 1), random(out, seed + 2));
    let mut expected = reference::direct(op, g, &a, &b);
    let tolerance = sum_tolerance(reference::terms(op, g)).max(4.0 * f64::from(convolver.facts().max_error));
    let replaced = run(cuda, (op, convolver), [&a, &b], None, 0);
    let shifted = run(cuda, (op, convolver), [&a, &b], None, SHIFT);
    let errors = [max_error(&replaced, &expected), max_error(&shifted, &expected)];
    expected.iter_mut().zip(&start).for_each(|(sum, &start)| *sum += f64::from(start));
    let added = max_error(&run(cuda, (op, convolver), [&a, &b], Some(&start), 0), &expected);
    let what = format!("{op} {} on {g:?}", convolver.facts().name);
    let mut wrong = Vec::new();
    for (error, how) in [(errors[0], ""), (errors[1], " at another address"), (added, " added")] {
        if error > tolerance {
            wrong.push(format!("{what}{how}: error {error:.2e} exceeds {tolerance:.2e}"));
        }
    }
    if convolver.facts().deterministic && run(cuda, (op, convolver), [&a, &b], None, 0) != replaced {
        wrong.push(format!("{what} is not deterministic"));
    }
    (replaced, errors[0].max(errors[1]), wrong)
}

#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn all_algorithms_agree_with_the_definition_on_random_geometries() {
    let cuda = cuda();
    let device = Device::Cuda(cuda.clone());
    let mut rng = tensor::rng::stream(2, 0);
    let mut seen_all: BTreeMap<(ConvOp, &str, bool), Seen> = BTreeMap::new();
    let mut wrong = Vec::new();
    for seed in 0..100 {
        let g = match seed % 4 {
            0 => random_geometry(&mut rng),
            1 => point_geometry(&mut rng),
            _ => smooth_geometry(&mut rng),
        };
        for op in ConvOp::ALL {
            let mut fp32 = BTreeMap::new();
            for name in names(op) {
                let seen = seen_all.entry((op, name, g.r.max(g.s) > 3)).or_default();
                let Ok(convolver) = find(&device, op, g, name) else { continue };
                let (result, error, complaints) = check(&cuda, op, &*convolver, seed);
                seen.geometries += 1;
                seen.worst = seen.worst.max(error);
                wrong.extend(complaints);
                match name.strip_suffix("_TF32").map(|name| &fp32[name]) {
                    None => drop(fp32.insert(name, (result, convolver.facts().workspace))),
                    Some((values, workspace)) => {
                        seen.same_as_fp32 += usize::from(*values == result);
                        seen.other_workspace += usize::from(*workspace != convolver.facts().workspace);
                    }
                }
            }
        }
    }
    for ((op, name, large), Seen { geometries, worst, same_as_fp32, other_workspace }) in &seen_all {
        let filter = if *large { "> 3" } else { "<= 3" };
        println!(
            "{op:14} {name:22} filters {filter:4}: {geometries:3} geometries, worst error {worst:.1e}, {same_as_fp32} as in FP32, {other_workspace} with another workspace"
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for op in ConvOp::ALL {
        for name in names(op) {
            let applied: usize =
                [false, true].iter().map(|large| seen_all[&(op, name, *large)].geometries).sum();
            // cuDNN 9 has the engine, but runs it on no geometry on an H200.
            let never = name == "WINOGRAD";
            assert!(applied > 0 || never, "{op} {name} applied to no geometry");
        }
    }
}

/// A random division of `g` among algorithms that apply.
fn random_configuration(
    device: &Device,
    kernel: &KernelId,
    g: &ConvGeometry,
    rng: &mut impl RngExt,
) -> Configuration {
    let mut left = g.n;
    let mut runs = Vec::new();
    while left > 0 {
        let samples = rng.random_range(1..=left.min(4));
        let ready = candidates(device, kernel, samples as u32).unwrap();
        let chosen = &ready[rng.random_range(0..ready.len())];
        runs.push(Run { count: 1, micro: chosen.measurement(1.0, 0.0) });
        left -= samples;
    }
    Configuration::new(runs)
}

#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn split_equals_undivided_replaced_and_added() {
    let cuda = cuda();
    let device = Device::Cuda(cuda.clone());
    let (mut rng, mut wrong) = (tensor::rng::stream(3, 0), Vec::new());
    for seed in 0..40 {
        let g = match seed % 3 {
            0 => random_geometry(&mut rng),
            1 => point_geometry(&mut rng),
            _ => smooth_geometry(&mut rng),
        };
        let g = g.with_batch(rng.random_range(2..10));
        for op in ConvOp::ALL {
            let [a, b, out] = operand_lens(op, &g);
            let (a, b, start) = (random(a, seed), random(b, seed + 1), random(out, seed + 2));
            let mut expected = reference::direct(op, &g, &a, &b);
            let configuration = random_configuration(&device, &kernel_id(op, &g, Format::F32), &g, &mut rng);
            let runner = Runner::new(&device, op, g, &configuration).unwrap();
            let tolerance =
                sum_tolerance(reference::terms(op, &g)).max(4.0 * f64::from(configuration.max_error()));
            for start in [None, Some(&start)] {
                if let Some(start) = start {
                    expected.iter_mut().zip(start).for_each(|(sum, &start)| *sum += f64::from(start));
                }
                let (start, workspace) = (start.map(Vec::as_slice).ok_or(out), runner.workspace().bytes());
                let result = on_device(&cuda, [&a, &b], start, workspace, 0, |operands, out, workspace| {
                    runner.run(operands, out, workspace).unwrap();
                });
                cuda.check().unwrap();
                let error = max_error(&result, &expected);
                if error > tolerance {
                    wrong.push(format!("{op} {configuration} on {g:?}: {error:.2e} > {tolerance:.2e}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// In BF16 and NHWC, undivided and divided, replacing and adding, against exact sums over all outputs.
#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn feature_maps_may_be_of_any_format() {
    let nhwc = AxisOrder::Nhwc;
    let (fp32, bf16) = (Format::F32, Format::BF16);
    let tf32 = |format| (format, Math::Tf32);
    let strict = [fp32, fp32.in_order(nhwc), bf16, bf16.in_order(nhwc)].map(|format| (format, Math::Fp32));
    for (format, math) in strict.into_iter().chain([fp32, fp32.in_order(nhwc)].map(tf32)) {
        let (mut device, mut rng) = (Device::Cuda(cuda()), tensor::rng::stream(11, 0));
        device.set_format(format);
        let mut seen = BTreeMap::new();
        let mut wrong = Vec::new();
        for number in 0..30 {
            let g = if number % 3 == 0 { random_geometry(&mut rng) } else { smooth_geometry(&mut rng) };
            let g = g.with_batch(rng.random_range(1..10));
            for op in ConvOp::ALL {
                let kernel = KernelId { math, ..kernel_id(op, &g, format) };
                let all = candidates(&device, &kernel, g.n as u32).unwrap();
                assert!(!all.is_empty(), "{format}: nothing for {op} of {g:?}");
                let divided = random_configuration(&device, &kernel, &g, &mut rng);
                let whole = all.iter().map(|one| Run { count: 1, micro: one.measurement(1.0, 0.0) });
                let undivided = whole.map(|run| Configuration::new([run]));
                for configuration in undivided.chain([divided]) {
                    let found = match distances(&device, op, g, &configuration) {
                        // Some say that they apply, and then refuse.
                        Err(ConvError::Algorithm { source, .. }) if is_unsupported(&source) => continue,
                        found => found.unwrap(),
                    };
                    for (accumulate, distance) in found {
                        let tolerance = distance_tolerance(configuration.max_error());
                        if distance > tolerance {
                            wrong.push(format!(
                                "{op} {configuration} {accumulate:?} on {g:?}: {distance:.1e}, not {tolerance:.1e}"
                            ));
                        }
                    }
                    *seen.entry((op, configuration.runs()[0].micro.algorithm.clone())).or_insert(0) += 1;
                }
            }
        }
        println!("{format} {math}: {seen:?}");
        assert!(wrong.is_empty(), "{format} {math}: {}", wrong.join("\n"));
        assert!(
            ConvOp::ALL.iter().all(|op| seen.iter().any(|((of, _), &count)| of == op && count >= 10)),
            "{seen:?}"
        );
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn a_configuration_that_does_not_suit_is_refused() {
    let device = Device::Cuda(cuda());
    let g = ConvGeometry::new([4, 8, 16, 16], 8, [3, 3]).pad([1, 1]).stride([2, 2]);
    let micro = |g, name| find(&device, ConvOp::Forward, g, name).unwrap().measurement(1.0, 0.0);
    let fits = micro(g, "BATCHED_GEMM");
    let refusal = |g, micro: Measurement| {
        let configuration = Configuration::new([Run { count: 1, micro }]);
        Runner::new(&device, ConvOp::Forward, g, &configuration).unwrap_err()
    };
    let error = refusal(g, Measurement { micro_batch: 3, ..fits.clone() });
    assert!(error.to_string().contains("of 3 samples does not cover a mini-batch of 4"), "{error}");
    // Unknown, and not for strides.
    for name in ["ALGO_0", "WINOGRAD"] {
        let error = refusal(g, Measurement { algorithm: name.into(), ..fits.clone() }).to_string();
        assert!(error.starts_with(&format!("this device has no algorithm {name} for Forward of")), "{error}");
    }
    let g = g.stride([1, 1]);
    let winograd = micro(g, "WINOGRAD_NONFUSED");
    let error = refusal(g, Measurement { workspace: Bytes(winograd.workspace.0 - 1), ..winograd });
    assert!(error.to_string().contains("but was planned with"), "{error}");
}

#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn profiling_measures_what_runs_and_what_is_asked_for() {
    let mut profiler = conv_profiler();
    let g = ConvGeometry::new([8, 16, 13, 13], 24, [3, 3]).pad([1, 1]);
    let kernel = kernel_id(ConvOp::BackwardFilter, &g, Format::F32);
    let names = |rows: &[Measurement]| -> Vec<String> {
        assert!(rows.iter().all(|row| row.time_ms > 0.0), "{rows:?}");
        rows.iter().map(|row| row.algorithm.as_str().to_owned()).collect()
    };
    let whole = names(&profiler.measure(&Request::all(kernel, 8)).unwrap());
    let part = names(&profiler.measure(&Request::all(kernel, 3)).unwrap());
    assert!(!whole.is_empty() && !part.is_empty() && whole.iter().all(|name| !name.contains("TF32")));

    let tf32 = KernelId { math: Math::Tf32, ..kernel };
    let in_tf32 = names(&profiler.measure(&Request::all(tf32, 3)).unwrap());
    let lasting = |names: &[String], in_tf32: bool| -> Vec<String> {
        let names =
            names.iter().filter(|name| !name.starts_with("ENG") && name.ends_with("_TF32") == in_tf32);
        names.cloned().collect()
    };
    // Whatever is allowed to the engines: the others, and their like in TF32.
    assert_eq!(lasting(&in_tf32, false), lasting(&part, false));
    assert!(lasting(&in_tf32, true).iter().any(|name| name == "BATCHED_GEMM_TF32"));

    let algorithms = Some(vec![part[0].as_str().into()]);
    let some = Request { mini_batch: 8, algorithms, ..Request::all(kernel, 3) };
    assert_eq!(names(&profiler.measure(&some).unwrap()), part[..1]);
    assert!(profiler.measure(&Request::all(KernelId { shape: Default::default(), ..kernel }, 0)).is_err());
}

#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn many_requests_are_served_each_with_its_own_kernel_and_size() {
    let mut profiler = conv_profiler();
    let g = ConvGeometry::new([8, 16, 13, 13], 24, [3, 3]).pad([1, 1]);
    let kernels = [ConvOp::Forward, ConvOp::BackwardData].map(|op| kernel_id(op, &g, Format::F32));
    let of_kernel = |kernel: KernelId| [8, 5, 1, 32].map(|size| Request::all(kernel, size));
    let requests: Vec<Request> = kernels.into_iter().flat_map(of_kernel).collect();
    let mut served = vec![0; requests.len()];
    let mut done = |index: usize, rows: Vec<Measurement>| {
        served[index] += 1;
        assert!(!rows.is_empty() && rows.iter().all(|row| row.micro_batch == requests[index].micro_batch));
        Ok(())
    };
    profiler.measure_each(&requests, &mut done).unwrap();
    assert!(served.iter().all(|&times| times == 1), "{served:?}");
    let mut refuse = |_, _| Err("enough".into());
    assert_eq!(profiler.measure_each(&requests[2..], &mut refuse).unwrap_err().to_string(), "enough");
}

/// More than 2^31 elements in x: cuDNN has no descriptor for it, and half of it runs.
#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN and 20 GiB of memory"]
fn a_tensor_beyond_32_bits_is_rescued_by_splitting() {
    let mut profiler = conv_profiler();
    let g = ConvGeometry::new([272, 8, 1024, 1024], 1, [1, 1]);
    assert!(g.x_len() > 1 << 31);
    let kernel = kernel_id(ConvOp::Forward, &g, Format::F32);
    let undivided = profiler.measure(&Request::all(kernel, 272)).unwrap();
    let half = profiler.measure(&Request::all(kernel, 136)).unwrap();
    println!("undivided {undivided:?}\nhalf {half:?}");
    assert!(!half.is_empty());
}
