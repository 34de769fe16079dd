//! Order, resuming, prefetching and errors of the loader.

use super::{Counting, Dataset, DatasetFacts, NetError, Sample, digits, read};
use crate::data::{ImageRecords, Loader, LoaderOptions, Phase};
use crate::spec::{ColorJitter, TransformParams};
use crate::{group::Share, testing::gpu};
use cudnn_layers::copy::copy;
use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
use std::{thread, time::Duration};
use tensor::{Arena, Cpu, Cursor, Device, Format, ViewMut};

const SHAPE: [usize; 3] = [1, 4, 5];

fn options(mini_batch: usize, shuffle: bool) -> LoaderOptions {
    let (phase, share) = (Phase::Train, Share::default());
    LoaderOptions { mini_batch, phase, seed: 11, shuffle, share }
}

fn augmenting() -> TransformParams {
    TransformParams { crop_size: Some(3), mirror: true, ..TransformParams::default() }
}

fn loader(dataset: Counting, options: LoaderOptions) -> Loader {
    Loader::new(Arc::new(dataset), &augmenting(), options, &Device::cpu()).unwrap()
}

/// The next `count` mini-batches: data and labels.
fn take(loader: &mut Loader, mini_batch: usize, count: usize) -> (Vec<f32>, Vec<f32>) {
    let sample: usize = loader.out_shape().iter().product();
    let (mut all_data, mut all_labels) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (mut data, mut labels) = (vec![f32::NAN; mini_batch * sample], vec![f32::NAN; mini_batch]);
        loader.upload(ViewMut::of(&mut data), Some(ViewMut::of(&mut labels))).unwrap();
        all_data.extend(data);
        all_labels.extend(labels);
    }
    (all_data, all_labels)
}

#[test]
fn samples_come_in_order_and_wrap_around() {
    let mut loader = loader(Counting::new(5, SHAPE), options(3, false));
    let (_, labels) = take(&mut loader, 3, 4);
    assert_eq!(labels, [0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 1.0]);
    assert_eq!(loader.position(), 12);
}

#[test]
fn a_mini_batch_may_be_larger_than_the_set() {
    let mut loader = loader(Counting::new(2, SHAPE), options(5, false));
    assert_eq!(take(&mut loader, 5, 1).1, [0.0, 1.0, 0.0, 1.0, 0.0]);
}

#[test]
fn shuffled_epochs_are_different_permutations() {
    let mut loader = loader(Counting::new(20, SHAPE), options(5, true));
    let (_, labels) = take(&mut loader, 5, 12);
    let epochs: Vec<Vec<u32>> =
        labels.chunks(20).map(|epoch| epoch.iter().map(|&l| l as u32).collect()).collect();
    for epoch in &epochs {
        let mut sorted = epoch.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
    assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2] && epochs[0] != (0..20).collect::<Vec<_>>());
}

#[test]
fn what_is_handed_out_does_not_depend_on_threads() {
    let decoded = |decoded| Counting::decoded(13, SHAPE, decoded);
    let expected = take(&mut loader(decoded(false), options(4, true)), 4, 10);
    for parallel in [false, true] {
        let found = take(&mut loader(decoded(parallel), options(4, true)), 4, 10);
        assert_eq!(found, expected, "parallel {parallel}");
    }
    let other_seed = LoaderOptions { seed: 12, ..options(4, true) };
    assert_ne!(take(&mut loader(decoded(false), other_seed), 4, 10), expected);
}

/// Whatever is random follows from the seed and the place in the sequence.
#[test]
fn augmented_images_are_the_same_on_any_number_of_threads() {
    let params = TransformParams {
        min_area: Some(0.1),
        crop_size: Some(16),
        mirror: true,
        mirror_vertically: true,
        rotation: 20.0,
        color_jitter: ColorJitter { brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1 },
        std: vec![57.0, 58.0, 59.0],
        ..TransformParams::default()
    };
    let epochs = |threads: usize, decoded: bool| {
        let set = Arc::new(Counting::decoded(13, [3, 24, 31], decoded));
        let device = Device::Cpu(Cpu::new(threads));
        take(&mut Loader::new(set, &params, options(4, true), &device).unwrap(), 4, 7)
    };
    let expected = epochs(1, false);
    for threads in [1, 2, 7] {
        assert_eq!(epochs(threads, true), expected, "{threads} threads");
    }
}

#[test]
fn a_resumed_loader_goes_on_bit_by_bit() {
    let new = || loader(Counting::new(13, SHAPE), options(4, true));
    let mut uninterrupted = new();
    take(&mut uninterrupted, 4, 5);
    let position = uninterrupted.position();
    let expected = take(&mut uninterrupted, 4, 7);
    let mut resumed = new();
    take(&mut resumed, 4, 2); // a worker is already ahead elsewhere
    resumed.set_position(position);
    assert_eq!(resumed.position(), position);
    assert_eq!(take(&mut resumed, 4, 7), expected);
    assert_eq!(resumed.position(), uninterrupted.position());
}

/// What a GPU is handed is what the processor is, and goes on likewise where it is told to.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_mini_batches_are_those_of_the_processor() {
    const POSITION: u64 = 30;
    let device = gpu();
    let expected = |position| {
        let mut loader = loader(Counting::new(13, SHAPE), options(4, true));
        loader.set_position(position);
        take(&mut loader, 4, 9)
    };
    let mut cursor = Cursor::default();
    let [spans, kept @ ..] = [[36, 4]; 10].map(|lens| lens.map(|len| cursor.take(Format::F32, len)));
    let mut arena = Arena::on(&device, cursor.end()).unwrap();
    for wants_labels in [true, false] {
        let set = Arc::new(Counting::decoded(13, SHAPE, true));
        let mut loader = Loader::new(set, &augmenting(), options(4, true), &device).unwrap();
        assert_eq!(loader.staged_bytes(), 160);
        for position in [0, POSITION] {
            loader.set_position(position);
            let (data, labels) = expected(position);
            for kept in kept {
                let ([], [data, labels]) = arena.lease([], spans).unwrap();
                loader.upload(data, wants_labels.then_some(labels)).unwrap();
                let (from, to) = arena.lease_all(&spans, &kept).unwrap();
                from.into_iter().zip(to).for_each(|(from, to)| copy(&device, from, to.replaced()));
            }
            for (number, parts) in kept.into_iter().enumerate() {
                let [found, found_labels] = parts.map(|part| arena.read::<f32>(part).unwrap());
                assert_eq!(found[..], data[36 * number..][..36], "mini-batch {number}");
                assert!(!wants_labels || found_labels[..] == labels[4 * number..][..4], "labels of {number}");
            }
        }
    }
}

#[test]
fn positions_need_not_be_multiples_of_the_mini_batch() {
    let mut loader = loader(Counting::new(13, SHAPE), options(4, false));
    loader.set_position(13 * 1_000_000_007 + 11);
    assert_eq!(take(&mut loader, 4, 1).1, [11.0, 12.0, 0.0, 1.0]);
}

#[test]
fn the_first_error_reaches_the_caller_again_and_again() {
    for decoded in [false, true] {
        let broken = Counting { broken: Some(6), ..Counting::decoded(9, SHAPE, decoded) };
        let mut loader = loader(broken, options(4, false));
        take(&mut loader, 4, 1);
        let (mut data, mut labels) = (vec![0.0; 36], vec![0.0; 4]);
        for _ in 0..2 {
            let error = loader.upload(ViewMut::of(&mut data), Some(ViewMut::of(&mut labels))).unwrap_err();
            assert_eq!(error.to_string(), "counting 6: broken");
            assert_eq!(loader.position(), 4);
        }
        loader.set_position(7);
        assert_eq!(take(&mut loader, 4, 1).1, [7.0, 8.0, 0.0, 1.0]);
    }
}

/// Samples take a millisecond each, and are counted.
struct Slow(Counting, AtomicUsize);

impl Dataset for Slow {
    fn facts(&self) -> &DatasetFacts {
        self.0.facts()
    }

    fn label(&self, index: usize) -> u32 {
        self.0.label(index)
    }

    fn place(&self, index: usize) -> String {
        self.0.place(index)
    }

    fn read_into(&self, index: usize, sample: &mut Sample) -> Result<(), NetError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(1));
        self.0.read_into(index, sample)
    }
}

#[test]
fn a_mini_batch_that_nobody_waits_for_is_given_up() {
    const SAMPLES: usize = 400;
    for decoded in [false, true] {
        let set = Arc::new(Slow(Counting::decoded(SAMPLES, SHAPE, decoded), AtomicUsize::new(0)));
        let none = TransformParams::default();
        let mut loader = Loader::new(set.clone(), &none, options(SAMPLES, false), &Device::cpu()).unwrap();
        take(&mut loader, SAMPLES, 1);
        drop(loader);
        let read = set.1.load(Ordering::SeqCst);
        assert!((SAMPLES..2 * SAMPLES).contains(&read), "{read} of {SAMPLES} were read, decoded: {decoded}");
    }
}

#[test]
fn impossible_loaders_are_refused() {
    let error = |transform: &TransformParams, mini_batch| {
        let dataset = Arc::new(Counting::new(5, SHAPE));
        Loader::new(dataset, transform, options(mini_batch, false), &Device::cpu()).err().unwrap().to_string()
    };
    assert_eq!(
        error(&TransformParams::default(), 0),
        "no mini-batch of 0 can be made from 5 samples of 1x4x5"
    );
    let crop = TransformParams { crop_size: Some(5), ..TransformParams::default() };
    assert_eq!(error(&crop, 2), "the image is 5x4 (width x height), too small for crop_size 5");
}

#[test]
fn the_digits_load_scaled_and_resized() {
    let set = Arc::new(ImageRecords::open(&digits(), Phase::Test).unwrap());
    let transform = TransformParams { scale: 1.0 / 256.0, resize: Some(28), ..TransformParams::default() };
    let options = LoaderOptions { phase: Phase::Test, ..options(100, false) };
    let mut loader = Loader::new(set.clone(), &transform, options, &Device::cpu()).unwrap();
    assert_eq!(loader.out_shape(), [1, 28, 28]);
    let (data, labels) = take(&mut loader, 100, 3);
    assert!((0..300).all(|index| labels[index] == set.label(index) as f32));
    let (low, high) =
        data.iter().fold((f32::MAX, f32::MIN), |(low, high), &value| (low.min(value), high.max(value)));
    assert!(low == 0.0 && high > 0.9 && high < 1.0, "{low} to {high}");
    let mean =
        |values: &[f32]| values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len() as f64;
    let original: Vec<f32> =
        (0..300).flat_map(|index| read(&*set, index).unwrap().pixels).map(|p| f32::from(p) / 256.0).collect();
    assert!((mean(&data) - mean(&original)).abs() < 0.02, "{} and {}", mean(&data), mean(&original));
}

#[test]
fn a_mini_batch_that_no_memory_holds_is_refused() {
    let set = Arc::new(Counting::new(5, SHAPE));
    let transform = TransformParams { resize: Some(16384), ..TransformParams::default() };
    let error =
        Loader::new(set, &transform, options(1 << 31, false), &Device::cpu()).err().unwrap().to_string();
    assert_eq!(error, "2147483648 samples of 1x16384x16384 are more than any memory holds");
}

#[test]
fn what_is_read_at_a_time_is_counted() {
    let bytes = |decoded, resize: Option<usize>| {
        let set = Arc::new(Counting::decoded(5, [1, 300, 400], decoded));
        let transform = TransformParams { resize, crop_size: Some(3), ..TransformParams::default() };
        Loader::new(set, &transform, options(1, false), &Device::cpu()).unwrap().host_bytes()
    };
    // What is prepared ahead are nine pixels and a label.
    let (order, threads) = ((size_of::<usize>() + 40) as u64, Cpu::available_threads() as u64);
    assert_eq!(bytes(false, None), order + 120_000);
    // Resized in one direction, then in the other.
    let resizing = 150 * 400 + 22_500;
    assert_eq!(bytes(false, Some(150)), order + 120_000 + resizing);
    assert_eq!(bytes(true, Some(150)), order + threads * (120_000 + resizing));
}

#[test]
fn samples_without_pixels_are_refused() {
    for shape in [[0, 4, 5], [1, 0, 5], [1, 4, 0]] {
        let set = Arc::new(Counting::new(5, shape));
        let made = Loader::new(set, &TransformParams::default(), options(2, false), &Device::cpu());
        let [c, h, w] = shape;
        let expected = format!("no mini-batch of 2 can be made from 5 samples of {c}x{h}x{w}");
        assert_eq!(made.err().unwrap().to_string(), expected);
    }
}

#[test]
fn no_position_is_too_far() {
    let mut loader = loader(Counting::new(4, SHAPE), options(3, false));
    loader.set_position(u64::MAX);
    assert_eq!((take(&mut loader, 3, 1).1, loader.position()), (vec![0.0, 1.0, 2.0], (1 << 53) + 3));
}
