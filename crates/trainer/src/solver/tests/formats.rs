//! Trainings on a GPU with feature maps in BF16 and NHWC, as near to those of the processor as their numbers are.

use super::cuda::{every_layer, lenet, snapshotting};
use super::{
    SGD, assert_near, assert_within, losses, parameters, plain, planned, residual, resume::histories, solver,
    start, start_on,
};
use crate::snapshot::{Weights, state_path, weights_path};
use crate::solver::Solver;
use crate::testing::{FIRST_LOSSES, Forced, Running, build_on, own_gpu, plan_options};
use planner::{BatchSizePolicy, WorkspacePolicy};
use tensor::{AxisOrder, Bf16, Cpu, Device, ElementType, Format};

/// The GPU with feature maps of `format`.
fn gpu_in(format: Format) -> Device {
    let mut device = own_gpu();
    device.set_format(format);
    device
}

fn formats() -> [Format; 3] {
    let nhwc = AxisOrder::Nhwc;
    [Format::F32.in_order(nhwc), Format::BF16, Format::BF16.in_order(nhwc)]
}

/// How far the first losses may be apart: of numbers of 8 bits, a few times half a unit in the last place.
fn first_losses(format: Format) -> f64 {
    if format.dtype == ElementType::Bf16 { 2e-2 } else { FIRST_LOSSES }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_iterations_of_every_layer_are_the_processors() {
    let fields = format!("{SGD} clip_gradients: 5 iter_size: 2");
    let expected = losses(&mut start(solver(&every_layer(), &fields)), 3);
    let plan = plan_options(BatchSizePolicy::All, WorkspacePolicy::Ws);
    for format in formats() {
        for configuration in [Forced::IMPLICIT_GEMM, Forced { algorithm: 1, mixed: true, sizes: &[4, 2] }] {
            let device = gpu_in(format);
            let prepared =
                planned(solver(&every_layer(), &fields), &device, |net| configuration.install(net, &plan));
            let found = losses(&mut prepared.start().unwrap(), 3);
            assert_near(&found, &expected, first_losses(format), &format!("{format}, {configuration:?}"));
        }
    }
}

/// Every parameter's gradient points where that of single precision does.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_gradients_point_where_those_of_single_precision_do() {
    let plan = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr);
    let gradients = |device: &Device, text: &str| {
        let mut net = build_on(device, text).unwrap();
        let plan = Forced::IMPLICIT_GEMM.install(&mut net, &plan);
        let mut running = Running::in_layout(net, plan, |_, layout| layout);
        running.iterate(0);
        running.gradients()
    };
    for text in [plain(32), residual(32)] {
        let expected = gradients(&Device::Cpu(Cpu::new(2)), &text);
        for format in formats() {
            for ((name, found), (_, expected)) in gradients(&gpu_in(format), &text).iter().zip(&expected) {
                let product = |a: &[f32], b: &[f32]| -> f64 {
                    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
                };
                let lengths = (product(found, found) * product(expected, expected)).sqrt();
                let (cosine, ratio) = (product(found, expected) / lengths, product(found, found) / lengths);
                assert!(cosine > 0.99 && (ratio - 1.0).abs() < 0.05, "{format}, {name}: {cosine}, {ratio}");
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_lenet_has_the_loss_curve_of_single_precision() {
    const ITERATIONS: usize = 50;
    let expected = losses(&mut start(lenet()), ITERATIONS);
    for format in formats() {
        let found = losses(&mut start_on(&gpu_in(format), lenet()), ITERATIONS);
        // What is left of the loss is a difference of larger numbers: the first one is the measure.
        let tolerance = |step: usize| 0.1 * expected[0] / expected[step];
        assert_within(&found, &expected, tolerance, &format.to_string());
    }
}

/// A snapshot of one mode goes on in every other.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_snapshots_go_on_in_any_format() {
    let modes = || {
        let gpus = formats().map(gpu_in);
        std::iter::once(Device::Cpu(Cpu::new(2))).chain(gpus)
    };
    for from in modes() {
        let folder = tempfile::tempdir().unwrap();
        let mut solver = start_on(&from, snapshotting(folder.path()));
        losses(&mut solver, 2);
        solver.snapshot().unwrap();
        let (weights, history) = (parameters(&solver), histories(&solver));
        let expected = losses(&mut solver, 2);
        for to in modes() {
            let mut solver = start_on(&to, snapshotting(folder.path()));
            solver.restore(&state_path(&folder.path().join("net"), 2)).unwrap();
            let what = format!("{} to {}", from.format(), to.format());
            assert!(parameters(&solver) == weights && histories(&solver) == history, "{what}");
            assert_near(&losses(&mut solver, 2), &expected, 3e-2, &what);
        }
    }
}

/// Whatever gives the weights other values: a start, updates, a snapshot, files of another training.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_copies_in_bf16_follow_their_weights() {
    let folder = tempfile::tempdir().unwrap();
    let copied = |solver: &Solver, when: &str| {
        let mut copies = 0;
        for (param, spans) in solver.running.params() {
            let Some(copy) = spans.copy else { continue };
            let weights = solver.running.arena.read::<f32>(spans.data).unwrap();
            let rounded: Vec<Bf16> = weights.iter().map(|&weight| Bf16::from_f32(weight)).collect();
            assert!(
                solver.running.arena.read::<Bf16>(copy).unwrap()[..] == rounded,
                "{} after {when}",
                param.name
            );
            copies += 1;
        }
        assert_eq!(copies, 3, "two convolutions and an inner product");
    };
    for order in [AxisOrder::Nchw, AxisOrder::Nhwc] {
        let mut solver = start_on(&gpu_in(Format::BF16.in_order(order)), snapshotting(folder.path()));
        copied(&solver, "the start");
        losses(&mut solver, 2);
        copied(&solver, "updates");
        let state = solver.snapshot().unwrap();
        let weights = Weights::load(&[weights_path(&folder.path().join("net"), 2)]).unwrap();
        losses(&mut solver, 1);
        solver.restore(&state).unwrap();
        copied(&solver, "restoring");
        losses(&mut solver, 1);
        solver.load_weights(&weights).unwrap();
        copied(&solver, "loading weights");
    }
}
