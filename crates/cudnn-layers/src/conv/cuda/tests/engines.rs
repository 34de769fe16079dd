//! Engines: which are tried, that they come back by their names, and that they can be recorded.

use super::super::engines::{Search, suits};
use super::{super::convolver::max_error, *};
use crate::conv::operands::operands;
use crate::cudnn::{EngineFacts, LIKELY};
use crate::space_to_depth::blocks;
use std::sync::Arc;
use tensor::{Bf16, Cursor, ElementType};

fn facts(numerical: &[u32], behavior: &[u32]) -> EngineFacts {
    EngineFacts { workspace: 0, numerical: numerical.to_vec(), behavior: behavior.to_vec() }
}

#[test]
fn engines_that_round_more_than_is_allowed_or_are_compiled_first_are_not_tried() {
    let (f32, bf16) = (Format::F32, Format::BF16);
    let (plain, tensor_cores) = (facts(&[], &[3]), facts(&[0, 4], &[3, 4]));
    for (format, math) in [(f32, Math::Fp32), (f32, Math::Tf32), (bf16, Math::Fp32)] {
        assert!(suits(&plain, format, math));
        assert_eq!(suits(&tensor_cores, format, math), (format, math) != (f32, Math::Fp32));
        // Down-converted operands, reduced sums, and code that is compiled late; a note of a newer version says
        // nothing.
        for other in [facts(&[1], &[]), facts(&[2], &[]), facts(&[], &[0])] {
            assert!(!suits(&other, format, math), "{other:?}");
        }
        assert!(suits(&facts(&[9, 77], &[99]), format, math));
    }
    assert!(!plain.says(EngineFacts::NONDETERMINISTIC) && tensor_cores.says(EngineFacts::NONDETERMINISTIC));
}

#[test]
fn the_notes_of_an_engine_decide_its_accuracy() {
    // In single precision with filters of 3x3 and of 3x5, and in BF16 with both.
    for (notes, in_f32, in_bf16) in [
        (&[][..], [1e-6, 1e-6], 4e-3),
        (&[0], [5e-4, 5e-4], 4e-3),
        (&[3], [1e-6, 1e-6], 4e-3),
        (&[0, 3], [5e-4, 5e-4], 4e-3),
        (&[5, 7], [1e-5, 2e-3], 2e-2),
        (&[0, 5], [1e-5, 2e-3], 2e-2),
    ] {
        let facts = facts(notes, &[]);
        let g = |s| ConvGeometry::new([1, 1, 9, 9], 1, [3, s]);
        let of = |format| [3, 5].map(|s| max_error(&facts, &g(s), format));
        assert_eq!((of(Format::F32), of(Format::BF16)), (in_f32, [in_bf16; 2]), "{notes:?}");
    }
}

/// The bytes that a run on operands and a workspace of its own gives, which may be recorded and replayed.
fn result(cuda: &Cuda, op: ConvOp, format: Format, convolver: &dyn Convolver, recorded: bool) -> Vec<u8> {
    let mut cursor = Cursor::default();
    let [a, b, out] = operands(op, &convolver.facts().geometry, format).map(|operand| cursor.place(&operand));
    let workspace = cursor.take(Format::U8, convolver.facts().workspace.0 as usize);
    let mut arena = Arena::unset(cuda.stream(), cursor.end()).unwrap();
    arena.set(arena.all(), 0xff).unwrap();
    for (seed, span) in [a, b].into_iter().enumerate() {
        let values = random(span.len / span.format.dtype.bytes(), seed as u64);
        match span.format.dtype {
            ElementType::F32 => arena.repeat(span, &values).unwrap(),
            _ => arena.repeat(span, &values.into_iter().map(Bf16::from_f32).collect::<Vec<_>>()).unwrap(),
        }
    }
    let run = |arena: &mut Arena| {
        let ([a, b], [out, workspace]) = arena.lease([a, b], [out, workspace]).unwrap();
        convolver.run([a, b], out.replaced(), workspace)
    };
    run(&mut arena).unwrap();
    cuda.check().unwrap();
    if recorded {
        let mut graph = cuda.record(|| run(&mut arena)).unwrap();
        arena.set(out, 0xff).unwrap();
        // SAFETY: memory and convolver are still there, and the result is read after the device was waited for.
        unsafe { graph.replay() }.unwrap();
        cuda.check().unwrap();
    }
    arena.read::<u8>(Span::bytes(out.offset, out.len)).unwrap().into_owned()
}

#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn an_engine_comes_back_by_its_name_and_can_be_recorded() {
    let (nhwc, mut seen) = (AxisOrder::Nhwc, BTreeMap::new());
    for format in [Format::F32, Format::F32.in_order(nhwc), Format::BF16, Format::BF16.in_order(nhwc)] {
        let mut cuda = cuda();
        cuda.format = format;
        let (device, mut rng) = (Device::Cuda(cuda.clone()), tensor::rng::stream(12, 0));
        for number in 0..12 {
            let g = if number % 3 == 0 { random_geometry(&mut rng) } else { smooth_geometry(&mut rng) };
            for op in ConvOp::ALL {
                let kernel = KernelId { math: Math::Tf32, ..kernel_id(op, &g, format) };
                let candidates = candidates(&device, &kernel, g.n as u32).unwrap().into_iter();
                let engines =
                    candidates.filter(|one| !one.facts().name.contains("GEMM") && one.load().is_ok());
                for engine in engines.filter(|engine| engine.facts().deterministic) {
                    let engine: Arc<dyn Convolver> = engine;
                    let named = find(&device, op, g, &engine.facts().name).unwrap();
                    assert_eq!(named.measurement(1.0, 0.0), engine.measurement(1.0, 0.0));
                    let first = result(&cuda, op, format, &*engine, false);
                    let what = format!("{format} {op} {} on {g:?}", engine.facts().name);
                    assert!(result(&cuda, op, format, &*named, false) == first, "{what}: another result");
                    assert!(
                        result(&cuda, op, format, &*named, true) == first,
                        "{what}: recorded, another result"
                    );
                    *seen.entry((format.to_string(), op)).or_insert(0) += 1;
                }
            }
        }
    }
    println!("{seen:?}");
    assert!(seen.len() == 12 && seen.values().all(|&engines| engines >= 12), "{seen:?}");
}

/// What adding costs in choice, and what is suggested: for the reader.
#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn engines_that_replace_can_add() {
    let cuda = cuda();
    let shapes = [
        ConvGeometry::new([32, 64, 56, 56], 64, [3, 3]).pad([1, 1]),
        ConvGeometry::new([32, 256, 56, 56], 64, [1, 1]),
        ConvGeometry::new([32, 128, 56, 56], 128, [3, 3]).pad([1, 1]).stride([2, 2]),
        ConvGeometry::new([32, 3, 224, 224], 64, [7, 7]).pad([3, 3]).stride([2, 2]),
        ConvGeometry::new([32, 64, 27, 27], 192, [5, 5]).pad([2, 2]),
    ];
    let nhwc = AxisOrder::Nhwc;
    for (format, math) in [
        (Format::F32, Math::Fp32),
        (Format::F32, Math::Tf32),
        (Format::F32.in_order(nhwc), Math::Fp32),
        (Format::F32.in_order(nhwc), Math::Tf32),
        (Format::BF16, Math::Fp32),
        (Format::BF16.in_order(nhwc), Math::Fp32),
    ] {
        for op in ConvOp::ALL {
            let (mut both, mut replacing, mut suggested) = ([0; 5], [0; 5], [0; 5]);
            for (place, g) in shapes.iter().enumerate() {
                let mut search = Search::new(&cuda, op, [*g; 2], format).unwrap();
                suggested[place] = search.graphs[0].engines(&cuda, LIKELY).unwrap().len();
                let count = |search: &Search| {
                    let found = search.suitable(LIKELY, math, usize::MAX).unwrap();
                    found.iter().filter(|engine| engine.load().is_ok()).count()
                };
                both[place] = count(&search);
                search.graphs.truncate(1);
                replacing[place] = count(&search);
            }
            println!(
                "{format} {math} {op}: {suggested:?} suggested, {replacing:?} replace, {both:?} add too"
            );
            assert!(format.layout != nhwc || both.iter().all(|&engines| engines > 0), "{format} {math} {op}");
        }
    }
}

/// Filters and their gradients are of the operands' type and order.
#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn only_gradients_in_bf16_or_that_cannot_be_added_are_converted() {
    let cuda = cuda();
    let g = ConvGeometry::new([8, 64, 14, 14], 64, [3, 3]).pad([1, 1]);
    for format in [Format::F32, Format::BF16].iter().flat_map(|f| [*f, f.in_order(AxisOrder::Nhwc)]) {
        for op in ConvOp::ALL {
            let search = Search::new(&cuda, op, [g; 2], format).unwrap();
            let (mut found, mut converting) = (0, 0);
            for engine in search.all(Math::Tf32).unwrap() {
                let before = engine.facts().workspace.0 - engine.workspace as u64;
                let is_single = format.dtype == ElementType::F32;
                let adds = op != ConvOp::BackwardFilter || is_single && engine.configs.len() == 2;
                let gradient = if adds { 0 } else { g.w_len() * format.dtype.bytes() };
                assert_eq!(before, gradient as u64, "{format} {op} {}", engine.facts().name);
                found += 1;
                converting += usize::from(!adds);
            }
            println!("{format} {op}: {found} engines, {converting} of them convert");
            assert!(found > 0, "{format} {op}");
        }
    }
}

/// They are not run here: some would not end.
#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn engines_that_never_end_are_no_candidates() {
    let engines = |op, stride, dilation| {
        let g = ConvGeometry::new([4, 8, 24, 24], 16, [3, 3]).pad([4; 2]).stride(stride).dilation(dilation);
        let kernel = KernelId { math: Math::Tf32, ..kernel_id(op, &g.validate().unwrap(), Format::F32) };
        let all = candidates(&Device::Cuda(cuda()), &kernel, 4).unwrap();
        assert!(!all.is_empty());
        all.iter().any(|one| !one.facts().name.contains("GEMM"))
    };
    for (stride, dilation) in [([4, 4], [2, 2]), ([1, 6], [1, 3]), ([8, 1], [4, 1])] {
        assert!(!engines(ConvOp::BackwardData, stride, dilation));
        assert!(
            engines(ConvOp::Forward, stride, dilation) && engines(ConvOp::BackwardFilter, stride, dilation)
        );
    }
    assert!(engines(ConvOp::BackwardData, [4, 4], [3, 3]) && engines(ConvOp::BackwardData, [2, 2], [2, 2]));
}

/// With blocks of pixels as channels, undivided and divided.
#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn few_channels_with_a_stride_become_many() {
    for format in [Format::F32, Format::BF16].iter().flat_map(|f| [*f, f.in_order(AxisOrder::Nhwc)]) {
        let (mut device, mut rng) = (Device::Cuda(cuda()), tensor::rng::stream(13, 0));
        device.set_format(format);
        let mut seen = 0;
        for _ in 0..30 {
            let mut pair =
                |range: std::ops::Range<usize>| [rng.random_range(range.clone()), rng.random_range(range)];
            let ([n, k], [h, w], filter) = (pair(1..9), pair(12..40), pair(1..12));
            let (pad, stride, [c, _]) = (pair(0..4), pair(2..5), pair(1..5));
            let g = ConvGeometry::new([n, c, h, w], 8 * k, filter).pad(pad).stride(stride);
            let g = blocks(&g, format).filter(|_| format.layout == AxisOrder::Nhwc).unwrap_or(g);
            for op in [ConvOp::Forward, ConvOp::BackwardFilter] {
                for math in [Math::Fp32, Math::Tf32] {
                    let kernel = KernelId { math, ..kernel_id(op, &g, format) };
                    let named = |samples: usize| {
                        let all = candidates(&device, &kernel, samples as u32).unwrap().into_iter();
                        let deep =
                            all.filter(|one| one.facts().name.starts_with("S2D_") && one.load().is_ok());
                        deep.map(|one| one.measurement(1.0, 0.0)).collect::<Vec<_>>()
                    };
                    let runs = |count, micros: Vec<Measurement>| {
                        micros.into_iter().map(move |micro| Configuration::new([Run { count, micro }]))
                    };
                    for configuration in runs(1, named(g.n)).chain(runs(n as u32, named(1))) {
                        for (accumulate, distance) in distances(&device, op, g, &configuration).unwrap() {
                            let tolerance = distance_tolerance(configuration.max_error());
                            let what = format!("{format} {op} {configuration} {accumulate:?} on {g:?}");
                            assert!(distance <= tolerance, "{what}: {distance:.1e}, not {tolerance:.1e}");
                        }
                        seen += 1;
                    }
                }
            }
        }
        println!("{format}: {seen} algorithms");
        assert!(seen > 100, "{seen}");
    }
}

/// Their numbers are those of cuDNN 9, as far as it has been seen: what has the name of a transform is one.
#[test]
#[ignore = "needs an NVIDIA GPU with cuDNN"]
fn transforming_engines_are_what_they_are_called() {
    let cuda = cuda();
    for (filter, op) in [3, 5].iter().flat_map(|filter| ConvOp::ALL.map(|op| (filter, op))) {
        let g = ConvGeometry::new([32, 64, 27, 27], 192, [*filter; 2]).pad([filter / 2; 2]);
        let search = Search::new(&cuda, op, [g; 2], Format::F32).unwrap();
        for (name, engine) in search.task.transforming() {
            assert_eq!(search.task.named(name).as_ref(), Some(&engine));
            let Some(engine) = search.set_up(&engine).unwrap() else {
                assert_eq!(name, "WINOGRAD", "{op} of filters {filter}x{filter}");
                continue;
            };
            let is_fft = name.starts_with("FFT");
            let max_error = if is_fft { 1e-6 } else { [1e-5, 2e-3][usize::from(*filter > 3)] };
            assert_eq!(engine.facts.max_error, max_error, "{op} {name}");
            // The note of sums in the frequency domain.
            assert!(!is_fft || engine.of_engine().says(3..4), "{op} {name}");
            assert_eq!((engine.facts.name.as_str(), engine.load()), (name, Ok(())), "{op}");
        }
        let all: Vec<String> =
            search.all(Math::Fp32).unwrap().into_iter().map(|one| one.facts.name).collect();
        assert!(
            ["FFT", "WINOGRAD_NONFUSED"].iter().all(|name| all.iter().any(|other| other == name)),
            "{all:?}"
        );
        assert!(search.all(Math::Tf32).unwrap().len() > all.len(), "{op}: no engine in TF32");
    }
}
