//! A training that goes on from a snapshot is the training that was never interrupted.

use super::{
    Prepared, Solver, assert_near, digits, head, layer, losses, parameters, plain, solver, start, start_on,
};
use crate::protobuf::Writer;
use crate::snapshot::{SolverState, Weights, load_solver_state};
use crate::testing::{FIRST_LOSSES, Forced, gpu, plan_options};
use crate::{
    net::graph::Param, net::layout::ParamSpans, planning::PlanOrigin, solver::TestOutput, stop::Stop,
};
use planner::{BatchSizePolicy, WorkspacePolicy};
use std::{collections::BTreeMap, fs, path::Path, sync::atomic::Ordering};
use tensor::{Cpu, Device};

/// Seven grey images of 6x6 in three classes, and the list of them.
fn images(folder: &Path) {
    let mut list = String::new();
    for index in 0..7u32 {
        let name = format!("{index}.png");
        let pixel = |x: u32, y: u32| image::Luma([((x * 31) ^ (y * 17) ^ (index * 53)) as u8]);
        image::GrayImage::from_fn(6, 6, pixel).save(folder.join(&name)).unwrap();
        list += &format!("{name} {}\n", index % 3);
    }
    fs::write(folder.join("list.txt"), list).unwrap();
}

/// Shuffled and mirrored images, dropout, batch norm; the test net reads part of an epoch each time.
fn net(folder: &Path) -> String {
    let folder = folder.display();
    let data = |phase: &str, batch, shuffle| {
        format!(
            "layer {{ name: 'images' type: 'ImageData' top: 'data' top: 'label' include {{ phase: {phase} }}
  transform_param {{ scale: 0.01 mirror: true crop_size: 5 }}
  image_data_param {{ source: '{folder}/list.txt' root_folder: '{folder}/' batch_size: {batch} is_color: false
    shuffle: {shuffle} }} }}\n"
        )
    };
    let norm = "batch_norm_param { scale_bias: true moving_average_fraction: 0.9 }";
    [
        data("TRAIN", 3, true),
        data("TEST", 2, true),
        "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'msra' } } }\n"
            .to_owned(),
        layer("BatchNorm", "bn", "conv", "conv", norm),
        layer("ReLU", "relu", "conv", "conv", ""),
        layer("Dropout", "drop", "conv", "conv", ""),
        head("conv", 3),
    ]
    .concat()
}

fn prepare(folder: &Path, seed: u64) -> Solver {
    prepare_on(&Device::Cpu(Cpu::new(2)), folder, seed)
}

fn prepare_on(device: &Device, folder: &Path, seed: u64) -> Solver {
    let prefix = folder.join("snapshot").display().to_string();
    let fields = format!(
        "base_lr: 0.05 lr_policy: 'step' gamma: 0.5 stepsize: 3 momentum: 0.9 weight_decay: 0.01 iter_size: 2
         test_iter: 2 test_interval: 2 snapshot_prefix: '{prefix}'"
    );
    let mut spec = solver(&net(folder), &fields);
    spec.random_seed = Some(seed);
    start_on(device, spec)
}

/// Losses, and a test after every second iteration.
fn train(solver: &mut Solver, iterations: usize) -> (Vec<f64>, Vec<TestOutput>) {
    let (mut all, mut tests) = (Vec::new(), Vec::new());
    for _ in 0..iterations / 2 {
        all.extend(losses(solver, 2));
        tests.extend(solver.tested());
    }
    (all, tests)
}

#[test]
fn resuming_changes_no_bit() {
    resuming_changes_no_bit_on(&Device::Cpu(Cpu::new(2)));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_resuming_changes_no_bit() {
    resuming_changes_no_bit_on(&gpu());
}

fn resuming_changes_no_bit_on(device: &Device) {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let prepare = |folder, seed| prepare_on(device, folder, seed);
    let mut whole = prepare(folder.path(), 3);
    train(&mut whole, 6);
    let path = whole.snapshot().unwrap();
    let expected = (train(&mut whole, 8), parameters(&whole));
    let mut resumed = prepare(folder.path(), 3);
    resumed.restore(&path).unwrap();
    assert_eq!(resumed.iteration(), 6);
    // The test before the snapshot is made again.
    resumed.tested();
    assert_eq!((train(&mut resumed, 8), parameters(&resumed)), expected);
    // And the test can fail: from the start, the same iterations are others.
    assert_ne!(train(&mut prepare(folder.path(), 3), 8).0, expected.0.0);
}

/// The state of every type of solver is all in its snapshot, and of no use to another.
#[test]
fn every_type_of_solver_resumes_bit_by_bit() {
    every_type_of_solver_resumes_bit_by_bit_on(&Device::Cpu(Cpu::new(2)));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_every_type_of_solver_resumes_bit_by_bit() {
    every_type_of_solver_resumes_bit_by_bit_on(&gpu());
}

fn every_type_of_solver_resumes_bit_by_bit_on(device: &Device) {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("snapshot").display().to_string();
    let prepare = |fields: &str| {
        let fields = format!(
            "base_lr: 0.01 lr_policy: 'fixed' weight_decay: 0.01 clip_gradients: 5 iter_size: 2
             snapshot_prefix: '{prefix}' {fields}"
        );
        start_on(device, super::solver(&plain(4), &fields))
    };
    let momentum = |name: &str| format!("type: '{name}' momentum: 0.9");
    let types = ["SGD", "Nesterov", "AdaDelta", "Adam", "AdamW"].map(momentum).into_iter();
    let rates = ["type: 'AdaGrad'", "type: 'RMSProp'", "larc: true momentum: 0.9"].map(str::to_owned);
    for fields in types.chain(rates) {
        let mut whole = prepare(&fields);
        losses(&mut whole, 3);
        let path = whole.snapshot().unwrap();
        let expected = (losses(&mut whole, 3), parameters(&whole), histories(&whole));
        let mut resumed = prepare(&fields);
        resumed.restore(&path).unwrap();
        assert_eq!(
            (losses(&mut resumed, 3), parameters(&resumed), histories(&resumed)),
            expected,
            "{fields}"
        );
    }
    let adam = prepare(&momentum("Adam"));
    let history = histories(&adam).iter().map(Vec::len).sum::<usize>();
    assert_eq!(history, 2 * parameters(&adam).iter().map(Vec::len).sum::<usize>());
    let error = prepare(&momentum("AdamW")).restore(&adam.snapshot().unwrap()).unwrap_err().to_string();
    assert!(error.ends_with("it is of a solver of type Adam, not AdamW"), "{error}");
}

/// What one device has written, the other reads, bit by bit.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_snapshots_go_to_the_processor_and_back() {
    let (gpu, cpu) = (gpu(), Device::Cpu(Cpu::new(2)));
    for (writer, reader) in [(&gpu, &cpu), (&cpu, &gpu)] {
        let folder = tempfile::tempdir().unwrap();
        images(folder.path());
        let mut written = prepare_on(writer, folder.path(), 3);
        train(&mut written, 6);
        let path = written.snapshot().unwrap();
        let (saved, history) = (parameters(&written), histories(&written));
        assert!(history.iter().flatten().any(|&value| value != 0.0));
        let mut read = prepare_on(reader, folder.path(), 3);
        assert_ne!(parameters(&read), saved);
        read.restore(&path).unwrap();
        assert_eq!((read.iteration(), parameters(&read), histories(&read)), (6, saved, history));
        let (there, here) = (losses(&mut written, 2), losses(&mut read, 2));
        assert_near(&here, &there, FIRST_LOSSES, "going on elsewhere");
    }
}

/// The momentum of all trained parameters.
pub(super) fn histories(solver: &Solver) -> Vec<Vec<f32>> {
    let history = |(param, spans): (&Param, &ParamSpans)| {
        Some(solver.running.read_param(param, spans.history?).unwrap().into_owned())
    };
    solver.running.params().filter_map(history).collect()
}

/// A solver that has already run takes over everything, too.
#[test]
fn a_solver_can_go_back() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let mut solver = prepare(folder.path(), 3);
    train(&mut solver, 2);
    let path = solver.snapshot().unwrap();
    let expected = (train(&mut solver, 4), parameters(&solver));
    solver.restore(&path).unwrap();
    solver.tested();
    assert_eq!((train(&mut solver, 4), parameters(&solver)), expected);
}

/// A file may count anything.
#[test]
fn a_snapshot_that_counts_to_the_end_of_numbers_does_not_end_the_process() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let mut solver = prepare(folder.path(), 1);
    let counters = [("best_loss", 0.5_f64.to_bits()), ("tests_since_best", u64::MAX)];
    solver.restore_counters(&counters.map(|(name, count)| (name.to_owned(), count)).into());
    assert_eq!(solver.judge(1.0), u64::MAX);
}

#[test]
fn a_loss_that_is_no_number_is_never_the_lowest() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let mut solver = prepare(folder.path(), 1);
    assert_eq!((solver.judge(f64::NAN), solver.best()), (1, None));
    assert_eq!((solver.judge(2.0), solver.best()), (0, Some(0)));
    // Earlier versions kept it.
    solver.restore_counters(&[("best_loss".to_owned(), f64::NAN.to_bits())].into());
    assert!(solver.is_best(2.0) && !solver.is_best(f64::NAN));
}

#[test]
fn another_seed_or_another_net_is_refused_and_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let mut solver = prepare(folder.path(), 3);
    train(&mut solver, 2);
    let path = solver.snapshot().unwrap();
    let mut other = prepare(folder.path(), 4);
    let before = parameters(&other);
    let error = other.restore(&path).unwrap_err();
    assert!(error.to_string().ends_with("trained with the seed 3, but this run has 4"), "{error}");
    assert_eq!((other.iteration(), parameters(&other)), (0, before));
    let mut other = start(super::solver(&format!("{}{}", digits(4), head("data", 10)), super::SGD));
    let before = parameters(&other);
    let error = other.restore(&path).unwrap_err();
    assert!(error.to_string().contains(" cannot be resumed: "), "{error}");
    assert!(error.to_string().contains("whose parameters differ from this net's"), "{error}");
    assert_eq!((other.iteration(), parameters(&other)), (0, before));
}

#[test]
fn weights_go_into_a_fresh_training() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let mut solver = prepare(folder.path(), 3);
    train(&mut solver, 2);
    solver.snapshot().unwrap();
    let weights = crate::snapshot::weights_path(&folder.path().join("snapshot"), 2);
    let mut fresh = prepare(folder.path(), 9);
    fresh.load_weights(&Weights::load(&[weights]).unwrap()).unwrap();
    assert_eq!((fresh.iteration(), parameters(&fresh)), (0, parameters(&solver)));
}

#[test]
fn a_solver_state_is_not_taken_for_weights() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let mut solver = prepare(folder.path(), 3);
    train(&mut solver, 2);
    let state = solver.snapshot().unwrap();
    let before = parameters(&solver);
    let error = Weights::load(std::slice::from_ref(&state)).err().unwrap().to_string();
    assert!(error.contains("(the momentum of a training), not weights"), "{error}");
    // The same behind a state that names a state.
    let weights = crate::snapshot::weights_path(&folder.path().join("snapshot"), 2);
    fs::copy(&state, &weights).unwrap();
    let error = solver.restore(&state).unwrap_err().to_string();
    assert!(error.contains("snapshot_iter_2.safetensors is a solver state"), "{error}");
    assert_eq!(parameters(&solver), before);
}

fn asked() -> Stop {
    let stop = Stop::default();
    stop.number.store(15, Ordering::SeqCst);
    stop
}

/// Batch norm has seen a mini-batch, and data were read, when the iteration is given up; so were those of a test before
/// it.
fn what_is_given_up_leaves_no_trace_on(device: &Device) {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let mut whole = prepare_on(device, folder.path(), 3);
    let mut stopped = prepare_on(device, folder.path(), 3);
    assert_eq!(losses(&mut whole, 3), losses(&mut stopped, 3));
    let finished = (parameters(&stopped), histories(&stopped));
    let test = whole.tested();
    assert_eq!(stopped.tested(), test);
    assert_eq!(stopped.step_unless(&asked()).unwrap(), None);
    assert_eq!((stopped.iteration(), (parameters(&stopped), histories(&stopped))), (3, finished));
    let path = stopped.snapshot().unwrap();
    assert_eq!(stopped.test(0, &asked(), |_| ()).unwrap(), None);
    let expected = (losses(&mut whole, 4), whole.tested(), parameters(&whole));
    let mut resumed = prepare_on(device, folder.path(), 3);
    resumed.restore(&path).unwrap();
    for solver in [&mut stopped, &mut resumed] {
        assert_eq!(solver.tested(), test, "the test before the iteration is made again");
        assert_eq!((losses(solver, 4), solver.tested(), parameters(solver)), expected);
    }
}

#[test]
fn what_is_given_up_leaves_no_trace() {
    what_is_given_up_leaves_no_trace_on(&Device::Cpu(Cpu::new(2)));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_what_is_given_up_leaves_no_trace() {
    what_is_given_up_leaves_no_trace_on(&gpu());
}

/// An image that is mended, and the training is the one that it would have been.
#[test]
fn an_error_in_the_data_can_be_mended_and_gone_on_from() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let expected = {
        let mut whole = prepare(folder.path(), 3);
        (losses(&mut whole, 6), parameters(&whole))
    };
    let image = folder.path().join("4.png");
    let mut solver = prepare(folder.path(), 3);
    let mut all = losses(&mut solver, 1);
    let good = fs::read(&image).unwrap();
    fs::write(&image, "no image").unwrap();
    let error = loop {
        match solver.step() {
            Ok(step) => all.push(step.loss),
            Err(error) => break error,
        }
        assert!(all.len() < 6, "every epoch has every image");
    };
    assert!(error.to_string().contains("4.png"), "{error}");
    let path = solver.snapshot().unwrap();
    fs::write(&image, good).unwrap();
    let mut resumed = prepare(folder.path(), 3);
    resumed.restore(&path).unwrap();
    all.extend(losses(&mut resumed, 6 - all.len()));
    assert_eq!((all, parameters(&resumed)), expected);
}

/// A training that is planned, but has not begun, of a solver and a net with some words replaced.
fn changed(folder: &Path, [from, to]: [&str; 2]) -> Prepared {
    let text = net(folder);
    let fields = "base_lr: 0.05 lr_policy: 'step' gamma: 0.5 stepsize: 3 momentum: 0.9 weight_decay: 0.01
        test_iter: 2 test_interval: 2 snapshot: 5";
    assert!(from.is_empty() || text.contains(from) || fields.contains(from), "there is no {from}");
    let replaced = |text: &str| if from.is_empty() { text.to_owned() } else { text.replace(from, to) };
    let spec = solver(&replaced(&text), &replaced(fields));
    let plan = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr);
    super::forced(spec, 2, Forced::IMPLICIT_GEMM, &plan)
}

#[test]
fn what_has_changed_since_a_snapshot_is_told_by_name() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path());
    let mut solver = changed(folder.path(), ["", ""]).start().unwrap();
    // In a folder that is not there.
    solver.training.spec.snapshot.prefix = folder.path().join("made/snapshot");
    losses(&mut solver, 1);
    let (state, _) = load_solver_state(&solver.snapshot().unwrap()).unwrap();
    let notes = |replacement: [&str; 2], state: &SolverState| {
        let prepared = changed(folder.path(), replacement);
        prepared.training.resume_notes(prepared.run.nets(), state, (None, &PlanOrigin::Recorded))
    };
    let exactly = ["the snapshot's plan is used, nothing is measured: training resumes bit-exactly under it"];
    let otherwise = |changes: &str| {
        [
            "the snapshot's plan is used, nothing is measured".to_owned(),
            format!(
                "not as when the snapshot was written, so training does not resume bit-exactly: {changes}"
            ),
        ]
    };
    for same in [["", ""], ["snapshot: 5", "snapshot: 6 display: 3"], ["test_iter: 2", "test_iter: 3"]] {
        assert_eq!(notes(same, &state), exactly, "{same:?}");
    }
    for (replacement, expected) in [
        (["momentum: 0.9", "momentum: 0.8"], "the momentum"),
        (["base_lr: 0.05", "base_lr: 0.04"], "the learning rate"),
        (["stepsize: 3", "stepsize: 4"], "the learning rate"),
        (["weight_decay: 0.01", "weight_decay: 0.01 regularization_type: 'L1'"], "the weight decay"),
        (["weight_decay: 0.01", "weight_decay: 0.01 iter_size: 2"], "iter_size"),
        (["weight_decay: 0.01", "weight_decay: 0.01 clip_gradients: 3"], "clip_gradients"),
        (["momentum: 0.9", "momentum: 0.9 type: 'Nesterov'"], "the solver's type"),
        (["momentum: 0.9", "momentum: 0.9 larc: true"], "larc"),
        (["momentum: 0.9", "momentum: 0.9 warmup_iter: 5"], "the warm-up"),
        (["mirror: true", "mirror: false"], "layer 'images'"),
        (["batch_size: 3", "batch_size: 4"], "layer 'images'"),
        (["moving_average_fraction: 0.9", "moving_average_fraction: 0.8"], "layer 'bn'"),
    ] {
        assert_eq!(notes(replacement, &state), otherwise(expected), "{replacement:?}");
    }
    let renamed = &notes(["name: 'images'", "name: 'pictures'"], &state)[1];
    for part in [
        "layer 'images', layer 'pictures'",
        "data start from the beginning: pictures/TEST0, pictures/TRAIN; ",
        "there is a position of data that are not read: images/TRAIN",
    ] {
        assert!(renamed.contains(part), "{renamed}");
    }
    let earlier = SolverState { settings: BTreeMap::new(), ..state.clone() };
    assert!(notes(["", ""], &earlier)[1].contains("clip_gradients, iter_size, larc, layer 'bn'"));
    // Other labels are other data, wherever the list lies; the same list elsewhere is the same.
    let list = fs::read_to_string(folder.path().join("list.txt")).unwrap();
    fs::write(folder.path().join("moved.txt"), &list).unwrap();
    assert_eq!(notes(["list.txt", "moved.txt"], &state), exactly);
    fs::write(folder.path().join("moved.txt"), list.replace("4.png 1", "4.png 2")).unwrap();
    assert_eq!(notes(["list.txt", "moved.txt"], &state), otherwise("the data of layer 'images'"));
    // So does a mean image.
    let settings = |name: &str, values: u8| {
        let shape =
            (1..).zip([1, 1, 6, 6]).fold(Writer::default(), |blob, (field, dim)| blob.number(field, dim));
        fs::write(folder.path().join(name), shape.bytes(5, [values; 4 * 36])).unwrap();
        let mean = format!("scale: 0.01 mean_file: '{}/{name}'", folder.path().display());
        changed(folder.path(), ["scale: 0.01", &mean]).training.settings["layer 'images'"].clone()
    };
    assert_eq!(settings("mean", 0), settings("moved", 0));
    assert_ne!(settings("mean", 0), settings("mean", 1));
}

/// `poly` counts to the end: with another one, every rate is another.
#[test]
fn another_end_is_another_rate_where_the_rate_counts_to_it() {
    let rate = |policy: &str, max_iter| {
        let mut spec = solver(&plain(2), &format!("base_lr: 0.1 lr_policy: {policy}"));
        spec.max_iter = max_iter;
        let plan = plan_options(BatchSizePolicy::Undivided, WorkspacePolicy::Wr);
        let prepared = super::forced(spec, 2, Forced::IMPLICIT_GEMM, &plan);
        prepared.training.settings["the learning rate"].clone()
    };
    assert_ne!(rate("'poly' power: 1", 100), rate("'poly' power: 1", 200));
    assert_ne!(rate("'cosine'", 100), rate("'cosine'", 200));
    assert_eq!(rate("'fixed'", 100), rate("'fixed'", 200));
}
