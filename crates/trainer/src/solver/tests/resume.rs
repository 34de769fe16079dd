//! A training that goes on from a snapshot is the training that was never interrupted.

use super::{
    Solver, TrainError, assert_near, digits, head, layer, losses, parameters, solver, start, start_on,
};
use crate::{snapshot::SnapshotError, solver::TestOutput, testing::gpu};
use std::{fs, path::Path};
use tensor::{Cpu, Device, testing::FIRST_LOSSES};

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
        tests.extend(solver.test(0).unwrap());
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
    assert_eq!((train(&mut resumed, 8), parameters(&resumed)), expected);
    // And the test can fail: from the start, the same iterations are others.
    assert_ne!(train(&mut prepare(folder.path(), 3), 8).0, expected.0.0);
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
fn histories(solver: &Solver) -> Vec<Vec<f32>> {
    let spans = solver.layout.nets[0].params.iter().filter_map(|spans| spans.history);
    spans.map(|span| solver.arena.read(span).unwrap().into_owned()).collect()
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
    assert_eq!((train(&mut solver, 4), parameters(&solver)), expected);
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
    assert!(matches!(error, TrainError::Snapshot(SnapshotError::Resume { .. })), "{error}");
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
    fresh.load_weights(&weights).unwrap();
    assert_eq!((fresh.iteration(), parameters(&fresh)), (0, parameters(&solver)));
}
