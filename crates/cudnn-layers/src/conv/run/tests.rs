//! Configurations of several algorithms, against the definition and call by call.

use super::*;
use crate::conv::Facts;
use crate::conv::tests::{named, reference, run};
use planner::Measurement;
use std::sync::Mutex;
use tensor::testing::{assert_close, random, sum_tolerance};
use tensor::{Arena, Cpu, Cursor, Format};

/// Sizes and algorithms of a mini-batch of fourteen samples. No algorithm's micro-batches follow each other.
fn parts(op: ConvOp) -> [(u32, &'static str); 7] {
    let names = match op {
        ConvOp::BackwardFilter => {
            let [gemm, small, large] = ["IMPLICIT_GEMM", "FFT_TILING_16", "FFT_TILING"];
            vec![gemm, small, large, gemm, large, small, gemm]
        }
        _ => {
            let [winograd, implicit] = ["WINOGRAD_4X4", "IMPLICIT_GEMM"];
            vec![winograd, "FFT_TILING_16", "FFT_TILING", implicit, "FFT_TILING_16", implicit, winograd]
        }
    };
    std::array::from_fn(|index| ([4, 3, 2, 2, 1, 1, 1][index], names[index]))
}

fn geometry() -> ConvGeometry {
    ConvGeometry::new([14, 18, 7, 9], 20, [3, 3]).pad([1, 1]).groups(2).validate().expect("a valid geometry")
}

/// A runner of [`parts`] on two threads.
fn mixed(op: ConvOp) -> Runner {
    let run = |&(micro_batch, algorithm): &(u32, &str)| Run {
        count: 1,
        micro: Measurement {
            algorithm: algorithm.into(),
            micro_batch,
            time_ms: 1.0,
            shared_ms: 0.0,
            workspace: Bytes::mib(64),
            max_error: 0.0,
            deterministic: true,
        },
    };
    let configuration = Configuration::new(parts(op).iter().map(run));
    let order = configuration.runs().iter().map(|run| (run.micro.micro_batch, run.micro.algorithm.as_str()));
    assert!(order.eq(parts(op)), "the configuration runs in another order");
    Runner::new(&Device::Cpu(Cpu::new(2)), op, geometry(), &configuration).expect("a sound configuration")
}

/// What `runner` makes of the operands, added to `start` if there is one, in a workspace of exactly the planned size
/// that is full of NaN.
fn execute(runner: &Runner, [a, b]: [&[f32]; 2], start: Option<&[f32]>) -> Vec<f32> {
    let span = Cursor::default().take(Format::U8, runner.workspace().bytes());
    let mut arena = Arena::new(span.len).unwrap();
    arena.set(span, 0xff).unwrap();
    let workspace = arena.view_mut(span);
    let out_len = operand_lens(runner.op, &runner.geometry)[2];
    let mut out = start.map_or_else(|| vec![f32::NAN; out_len], <[f32]>::to_vec);
    let to = ViewMut::of(&mut out[..]);
    let to = if start.is_some() { to.added() } else { to.replaced() };
    runner.run([View::of(a), View::of(b)], to, workspace).unwrap();
    out
}

#[test]
fn several_algorithms_agree_with_the_definition() {
    let g = geometry();
    for op in ConvOp::ALL {
        let [a, b, out] = operand_lens(op, &g);
        let (a, b, start) = (random(a, 1), random(b, 2), random(out, 3));
        let mut expected = reference::direct(op, &g, &a, &b);
        let tolerance = sum_tolerance(reference::terms(op, &g)).max(2e-5);
        let runner = mixed(op);
        assert_close(&execute(&runner, [&a, &b], None), &expected, tolerance, &format!("{op}"));
        expected.iter_mut().zip(&start).for_each(|(sum, &start)| *sum += f64::from(start));
        let added = execute(&runner, [&a, &b], Some(&start));
        assert_close(&added, &expected, tolerance, &format!("{op} added"));
    }
}

/// Each call by itself prepares all it needs, in a workspace of its own.
#[test]
fn sharing_does_not_change_a_bit() {
    let g = geometry();
    for op in [ConvOp::Forward, ConvOp::BackwardData] {
        let [a, w, out] = operand_lens(op, &g);
        let (a, w, mut expected) = (random(a, 1), random(w, 2), vec![f32::NAN; out]);
        let mut first = 0;
        for (micro_batch, algorithm) in parts(op) {
            let samples = first..first + micro_batch as usize;
            let [a_range, _, out_range] = slices(op, &g, &samples);
            let convolver = named(2, algorithm, op, &g.with_batch(samples.len())).expect("it applies");
            let result = run(&*convolver, out_range.len(), (&a[a_range], &w), None);
            expected[out_range].copy_from_slice(&result);
            first = samples.end;
        }
        assert!(execute(&mixed(op), [&a, &w], None) == expected, "{op}");
    }
}

/// An algorithm that is watched. It never sees a filter after it has had the occasion to prepare it.
#[derive(Debug)]
struct Watched {
    convolver: Arc<dyn Convolver>,
    calls: &'static Mutex<Vec<(String, usize)>>,
}

/// Samples of a preparation, in the list of calls.
const PREPARED: usize = 0;

impl Watched {
    fn note(&self, samples: usize) {
        self.calls.lock().expect("no panic").push((self.facts().name.clone(), samples));
    }
}

impl Convolver for Watched {
    fn facts(&self) -> &Facts {
        self.convolver.facts()
    }

    fn prepare(&self, filter: View<'_>, workspace: ViewMut<'_>) {
        self.note(PREPARED);
        self.convolver.prepare(filter, workspace);
    }

    fn run(&self, [a, b]: [View<'_>; 2], out: Out<'_>, workspace: ViewMut<'_>) -> Result<()> {
        self.note(self.facts().geometry.n);
        let gone = vec![f32::NAN; b.len()];
        let b = if self.facts().prepared > Bytes(0) { View::of(&gone) } else { b };
        self.convolver.run([a, b], out, workspace)
    }
}

#[test]
fn each_algorithm_prepares_the_filter_once_and_others_do_not_disturb_it() {
    let g = geometry();
    for op in ConvOp::ALL {
        let calls: &Mutex<Vec<_>> = Box::leak(Box::default());
        let runner = mixed(op);
        let mut watched = runner.clone();
        for call in &mut watched.calls {
            call.convolver = Arc::new(Watched { convolver: call.convolver.clone(), calls });
        }
        let [a, b, _] = operand_lens(op, &g);
        let (a, b) = (random(a, 1), random(b, 2));
        let expected = execute(&runner, [&a, &b], None);
        // Twice: nothing is left from one run of a kernel to the next.
        for _ in 0..2 {
            assert!(execute(&watched, [&a, &b], None) == expected, "{op}");
            let mut order: Vec<(String, usize)> = Vec::new();
            for (_, name) in parts(op) {
                if order.iter().all(|(other, _)| other != name) {
                    let sizes =
                        parts(op).into_iter().filter(|part| part.1 == name).map(|part| part.0 as usize);
                    order.extend(std::iter::once(PREPARED).chain(sizes).map(|size| (name.to_owned(), size)));
                }
            }
            assert_eq!(std::mem::take(&mut *calls.lock().expect("no panic")), order, "{op}");
        }
    }
}

#[test]
fn what_is_no_convolution_is_refused() {
    let none = ConvGeometry { n: 0, ..geometry() };
    for geometry in [none, ConvGeometry { stride: [0, 1], ..none }, ConvGeometry::default()] {
        let made = Runner::new(&Device::cpu(), ConvOp::Forward, geometry, &Configuration::new([]));
        assert!(matches!(made, Err(ConvError::Geometry(_))), "{made:?}");
    }
}
