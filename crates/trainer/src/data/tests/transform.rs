//! Crop, mirror, mean, scale and resize, number by number.

use crate::{
    data::{
        Draw, Phase, Sample, Transform, TransformScratch,
        resize::{Interleaved, Resizer},
    },
    spec::{Mean, TransformParams},
};
use tensor::MemoryError;

/// Pixel value = 100 channel + 10 row + column.
fn sample(shape: [usize; 3]) -> Sample {
    let [channels, height, width] = shape;
    let index = (0..channels).flat_map(|c| (0..height).flat_map(move |y| (0..width).map(move |x| (c, y, x))));
    Sample { pixels: index.map(|(c, y, x)| (100 * c + 10 * y + x) as u8).collect(), shape, label: 0 }
}

fn apply(options: &TransformParams, shape: [usize; 3], phase: Phase, position: u64) -> Vec<f32> {
    let transform = Transform::new(options, shape, phase).unwrap();
    let mut out = vec![f32::NAN; transform.out_shape().iter().product()];
    let draw = Draw { seed: 7, position };
    transform.apply(&sample(shape), draw, &mut TransformScratch::default(), &mut out).unwrap();
    out
}

#[test]
fn the_mean_is_subtracted_before_scaling() {
    let options =
        TransformParams { scale: 0.5, mean: Mean::Values(vec![1.0, 103.0]), ..TransformParams::default() };
    let out = apply(&options, [2, 1, 3], Phase::Train, 0);
    assert_eq!(out, [-0.5, 0.0, 0.5, -1.5, -1.0, -0.5]);
    let one = TransformParams { mean: Mean::Values(vec![1.0]), ..TransformParams::default() };
    assert_eq!(apply(&one, [2, 1, 2], Phase::Test, 0), [-1.0, 0.0, 99.0, 100.0]);
    let error = Transform::new(&options, [3, 1, 3], Phase::Test).err().unwrap().to_string();
    assert_eq!(error, "2 mean_value given for images of 3 channels; give none, one or 3");
}

#[test]
fn testing_crops_the_centre_rounded_down() {
    let options = TransformParams { crop_size: Some(2), ..TransformParams::default() };
    assert_eq!(apply(&options, [1, 5, 4], Phase::Test, 3), [11.0, 12.0, 21.0, 22.0]);
    assert_eq!(
        apply(&options, [2, 2, 3], Phase::Test, 3),
        [0.0, 1.0, 10.0, 11.0, 100.0, 101.0, 110.0, 111.0]
    );
}

#[test]
fn training_crops_everywhere_equally_often() {
    let options = TransformParams { crop_size: Some(2), ..TransformParams::default() };
    let mut counts = [[0; 3]; 4];
    for position in 0..1200 {
        let out = apply(&options, [1, 5, 4], Phase::Train, position);
        let corner = out[0] as usize;
        assert_eq!(out, [0, 1, 10, 11].map(|step| (corner + step) as f32));
        counts[corner / 10][corner % 10] += 1;
    }
    // 100 expected in each; 5 standard deviations are 48.
    assert!(counts.iter().flatten().all(|count| (52..=148).contains(count)), "{counts:?}");
}

#[test]
fn half_of_the_images_are_mirrored_in_both_phases_and_no_others() {
    let plain = TransformParams { crop_size: Some(3), ..TransformParams::default() };
    let mirroring = TransformParams { mirror: true, ..plain.clone() };
    for phase in [Phase::Train, Phase::Test] {
        let mut mirrored = 0;
        for position in 0..400 {
            let image = apply(&plain, [2, 4, 5], phase, position);
            let found = apply(&mirroring, [2, 4, 5], phase, position);
            let reflected: Vec<f32> = image.chunks(3).flat_map(|row| row.iter().rev().copied()).collect();
            mirrored += u32::from(found == reflected);
            assert!(found == image || found == reflected, "the crop must not depend on mirroring");
        }
        assert!((150..=250).contains(&mirrored), "{mirrored} of 400");
    }
}

#[test]
fn a_mean_image_is_cropped_with_the_image_and_not_mirrored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mean");
    // The mean equals the image: whatever is cropped or mirrored, nothing is left.
    let mut blob = vec![1 << 3, 1, 2 << 3, 2, 3 << 3, 4, 4 << 3, 5, 5 << 3 | 2, 160, 1];
    blob.extend(sample([2, 4, 5]).pixels.iter().flat_map(|&pixel| f32::from(pixel).to_le_bytes()));
    std::fs::write(&path, blob).unwrap();
    let options = TransformParams {
        mean: Mean::File(path),
        crop_size: Some(3),
        mirror: true,
        ..TransformParams::default()
    };
    for position in 0..20 {
        assert_eq!(apply(&options, [2, 4, 5], Phase::Train, position), [0.0; 18]);
    }
}

#[test]
fn misfits_are_named() {
    let cropping = TransformParams { crop_size: Some(4), ..TransformParams::default() };
    let error = Transform::new(&cropping, [1, 8, 3], Phase::Test).err().unwrap().to_string();
    assert_eq!(error, "the image is 8x3, too small for crop_size 4");
    for zero in [
        TransformParams { crop_size: Some(0), ..TransformParams::default() },
        TransformParams { resize: Some(0), ..TransformParams::default() },
    ] {
        assert!(Transform::new(&zero, [1, 8, 8], Phase::Test).is_err());
    }
    let draw = Draw { seed: 0, position: 0 };
    let misfit = |options: &TransformParams, shape| {
        let transform = Transform::new(options, [3, 8, 8], Phase::Train).unwrap();
        let mut out = vec![0.0; transform.out_shape().iter().product()];
        transform.apply(&sample(shape), draw, &mut TransformScratch::default(), &mut out)
    };
    assert_eq!(misfit(&cropping, [3, 4, 9]), Ok(()));
    let small = misfit(&cropping, [3, 3, 9]).unwrap_err();
    assert_eq!(small, "the image is 3x9, too small for crop_size 4");
    let grey = misfit(&cropping, [1, 8, 8]).unwrap_err();
    assert_eq!(grey, "the image has 1 channels where 3 are expected");
    let plain = TransformParams::default();
    let wide = misfit(&plain, [3, 8, 9]).unwrap_err();
    assert!(wide.starts_with("the image is 8x9 where 8x8 is expected; resize all images"), "{wide}");
    let resizing = TransformParams { resize: Some(8), ..plain };
    assert_eq!(misfit(&resizing, [3, 2, 9]), Ok(()));
}

#[test]
fn resizing_keeps_an_equal_size_and_constant_images() {
    let mut resizer = Resizer::default();
    let mut out = Vec::new();
    let image = Interleaved { pixels: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], size: [2, 3], channels: 2 };
    resizer.resize(image, &[1, 0, 1], [2, 3], &mut out);
    assert_eq!(out, [2, 4, 6, 8, 10, 12, 1, 3, 5, 7, 9, 11, 2, 4, 6, 8, 10, 12]);
    out.clear();
    resizer.resize(Interleaved { pixels: &[251; 12], size: [3, 4], channels: 1 }, &[0], [7, 2], &mut out);
    assert_eq!(out, [251; 14]);
}

#[test]
fn resizing_agrees_with_the_bilinear_formula() {
    let Sample { pixels, .. } = sample([2, 5, 7]);
    let (first, second) = pixels.split_at(35);
    let pixels: Vec<u8> = first.iter().zip(second).flat_map(|(&first, &second)| [9, second, first]).collect();
    for to in [[10, 14], [3, 4], [5, 21], [1, 1], [16, 2]] {
        let mut out = Vec::new();
        let image = Interleaved { pixels: &pixels, size: [5, 7], channels: 3 };
        Resizer::default().resize(image, &[2, 1], to, &mut out);
        assert_eq!(out.len(), 2 * to[0] * to[1]);
        for (i, &found) in out.iter().enumerate() {
            let (channel, y, x) = (i / (to[0] * to[1]), i / to[1] % to[0], i % to[1]);
            let at = |d: usize, src: usize, dst: usize| {
                ((d as f64 + 0.5) * src as f64 / dst as f64 - 0.5).clamp(0.0, (src - 1) as f64)
            };
            // Linear in both coordinates, so interpolation is exact.
            let expected = 100.0 * channel as f64 + 10.0 * at(y, 5, to[0]) + at(x, 7, to[1]);
            assert!(
                (f64::from(found) - expected).abs() < 0.52,
                "{to:?} at {y}, {x}: {found}, expected {expected}"
            );
        }
    }
}

#[test]
fn an_image_that_is_resized_beyond_all_memory_is_an_error() {
    let side = 1 << 28;
    let options = TransformParams { resize: Some(side), crop_size: Some(1), ..TransformParams::default() };
    let transform = Transform::new(&options, [2, 3, 5], Phase::Test).unwrap();
    let (draw, mut scratch) = (Draw { seed: 1, position: 0 }, TransformScratch::default());
    let misfit = transform.apply(&sample([2, 3, 5]), draw, &mut scratch, &mut [0.0; 2]).unwrap_err();
    assert_eq!(misfit, MemoryError::Host { bytes: 2 * side * side }.to_string());
}

/// A header may announce any width, and its picture is decoded later, if at all.
#[test]
fn what_is_subtracted_takes_no_memory_for_wide_images() {
    let params = TransformParams { mean: Mean::Values(vec![1.0, 2.0, 3.0]), ..TransformParams::default() };
    let transform = Transform::new(&params, [3, 1, 1 << 40], Phase::Test).unwrap();
    assert_eq!(transform.out_shape(), [3, 1, 1 << 40]);
}
