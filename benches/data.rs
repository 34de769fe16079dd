//! How many images a second are decoded and transformed, without a net, by default with one thread and with all:
//! `cargo bench -p microbatch-trainer --bench data [-- THREADS…]`.
//!
//! The images are JPEG files of 500x375 pixels, as large as ImageNet's are on average, that lie in the system's cache:
//! no disk is measured. Every number is the best of three rounds of about a second.

use image::{Rgb, RgbImage, codecs::jpeg::JpegEncoder};
use rayon::prelude::*;
use std::{fs, path::Path, sync::Arc, time::Instant};
use tensor::{Cpu, Device, ViewMut};
use trainer::data::{Dataset, ImageData, Loader, LoaderOptions, Phase, Sample};
use trainer::group::Share;
use trainer::spec::{ColorJitter, TransformParams};

const FILES: u32 = 64;
const MINI_BATCH: usize = 64;

/// A picture with slopes, edges and noise, which takes about as many bytes as a photo.
fn picture(number: u32) -> RgbImage {
    let mut state = number.wrapping_mul(2_654_435_761).wrapping_add(1);
    RgbImage::from_fn(500, 375, |x, y| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let noise = (state >> 28) as i32 - 8;
        let edge = if (x / 40 + y / 30 + number).is_multiple_of(3) { 50 } else { 0 };
        Rgb([x / 3, y / 2, (x + y) / 5].map(|slope| (slope as i32 + edge + noise).clamp(0, 255) as u8))
    })
}

fn write_images(folder: &Path) -> u64 {
    let mut list = String::new();
    let mut bytes = 0;
    for number in 0..FILES {
        let mut jpeg = Vec::new();
        JpegEncoder::new_with_quality(&mut jpeg, 90).encode_image(&picture(number)).expect("memory takes it");
        bytes += jpeg.len() as u64;
        fs::write(folder.join(format!("{number}.jpg")), jpeg).expect("a writable folder");
        list += &format!("{number}.jpg {number}\n");
    }
    fs::write(folder.join("list.txt"), list).expect("a writable folder");
    bytes / u64::from(FILES)
}

/// Images a second of `work`, which does so many.
fn speed(images: usize, mut work: impl FnMut()) -> f64 {
    work();
    let round = |work: &mut dyn FnMut()| {
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed().as_secs_f64() < 1.0 {
            work();
            done += images;
        }
        done as f64 / start.elapsed().as_secs_f64()
    };
    (0..3).map(|_| round(&mut work)).fold(0.0, f64::max)
}

fn main() {
    let given: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if given.is_empty() { vec![1, all] } else { given };
    let folder = tempfile::tempdir().expect("a writable folder");
    let bytes = write_images(folder.path());
    let open = || ImageData::open_list(&folder.path().join("list.txt"), folder.path(), true);
    let set = Arc::new(open().expect("the images just written"));
    println!("{FILES} JPEG files of 500x375, {bytes} bytes on average; images a second:");
    let crop = TransformParams { crop_size: Some(224), ..TransformParams::default() };
    let random = TransformParams { min_area: Some(0.08), mirror: true, std: vec![58.0], ..crop.clone() };
    let transforms = [
        (
            "new_height and new_width 256, crop 224, mirror",
            TransformParams { new_size: Some([256; 2]), mirror: true, ..crop.clone() },
        ),
        ("shorter_side 256, crop 224", TransformParams { shorter_side: Some(256), ..crop }),
        ("min_area 0.08 to 224, mirror", random.clone()),
        ("the same, and rotation", TransformParams { rotation: 15.0, ..random.clone() }),
        (
            "the same, and color_jitter",
            TransformParams {
                color_jitter: ColorJitter { brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1 },
                ..random
            },
        ),
    ];
    for threads in threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("so many threads");
        let read = || {
            (0..set.facts().len).into_par_iter().for_each_init(Sample::default, |sample, index| {
                set.read_into(index, sample).expect("an image");
            });
        };
        let row = |what: &str, speed: f64| {
            println!("{threads:3} threads {what:48} {speed:8.0} {:8.0} a thread", speed / threads as f64);
        };
        row("read and decode alone", pool.install(|| speed(set.facts().len, read)));
        for (what, params) in &transforms {
            let (phase, share) = (Phase::Train, Share::default());
            let options = LoaderOptions { mini_batch: MINI_BATCH, phase, seed: 0, shuffle: true, share };
            let device = Device::Cpu(Cpu::new(threads));
            let mut loader = Loader::new(set.clone(), params, options, &device).expect("options that fit");
            let mut data = vec![0.0; MINI_BATCH * 3 * 224 * 224];
            let work = || loader.upload(ViewMut::of(&mut data), None).expect("a mini-batch");
            row(what, speed(MINI_BATCH, work));
        }
    }
}
