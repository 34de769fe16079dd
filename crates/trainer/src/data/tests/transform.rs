//! Crop, mirror, mean, scale and resize, number by number.

use crate::data::resize::{self, AVERAGING, NEAREST2, Pixels, Region};
use crate::data::{Phase, Sample, Transform, TransformScratch};
use crate::spec::{Mean, TransformParams};
use fast_image_resize::ResizeAlg;

/// Pixel value = 100 channel + 10 row + column.
fn sample(shape: [usize; 3]) -> Sample {
    let [channels, height, width] = shape;
    let index = (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..channels).map(move |c| (c, y, x))));
    let pixels = index.map(|(c, y, x)| (100 * c + 10 * y + x) as u8).collect();
    Sample { pixels, shape }
}

fn apply(options: &TransformParams, shape: [usize; 3], phase: Phase, position: u64) -> Vec<f32> {
    let transform = Transform::new(options, shape, phase).unwrap();
    let mut out = vec![f32::NAN; transform.out_shape().iter().product()];
    transform.apply(&sample(shape), (7, position), &mut TransformScratch::default(), &mut out).unwrap();
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
    let image = apply(&TransformParams::default(), [2, 4, 5], Phase::Test, 0);
    blob.extend(image.iter().flat_map(|pixel| pixel.to_le_bytes()));
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
    assert_eq!(error, "the image is 3x8 (width x height), too small for crop_size 4");
    for zero in [
        TransformParams { crop_size: Some(0), ..TransformParams::default() },
        TransformParams { resize: Some(0), ..TransformParams::default() },
    ] {
        assert!(Transform::new(&zero, [1, 8, 8], Phase::Test).is_err());
    }
    let draw = (0, 0);
    let misfit = |options: &TransformParams, shape| {
        let transform = Transform::new(options, [3, 8, 8], Phase::Train).unwrap();
        let mut out = vec![0.0; transform.out_shape().iter().product()];
        transform.apply(&sample(shape), draw, &mut TransformScratch::default(), &mut out)
    };
    assert_eq!(misfit(&cropping, [3, 4, 9]), Ok(()));
    let small = misfit(&cropping, [3, 3, 9]).unwrap_err();
    assert_eq!(small, "the image is 9x3 (width x height), too small for crop_size 4");
    let grey = misfit(&cropping, [1, 8, 8]).unwrap_err();
    assert_eq!(grey, "the image has 1 channels where 3 are expected");
    let plain = TransformParams::default();
    let wide = misfit(&plain, [3, 8, 9]).unwrap_err();
    assert!(
        wide.starts_with("the image is 9x8 (width x height) where 8x8 is expected; resize all images"),
        "{wide}"
    );
    let resizing = TransformParams { resize: Some(8), ..plain };
    assert_eq!(misfit(&resizing, [3, 2, 9]), Ok(()));
}

/// Resizes `pixels` of three channels.
fn resize(pixels: &[u8], size: [usize; 2], to: [usize; 2], sampling: ResizeAlg) -> Vec<u8> {
    let (mut out, image) = (Vec::new(), Pixels { bytes: pixels, size, channels: 3 });
    resize::resize(&mut Default::default(), image, Region::whole(size), (to, sampling), &mut out).unwrap();
    assert_eq!(out.len(), 3 * to[0] * to[1]);
    out
}

#[test]
fn resizing_keeps_an_equal_size_and_constant_images() {
    let pixels: Vec<u8> = (0..18).collect();
    for sampling in [NEAREST2, AVERAGING] {
        assert_eq!(resize(&pixels, [2, 3], [2, 3], sampling), pixels);
        assert_eq!(resize(&[251; 36], [3, 4], [7, 2], sampling), [251; 42]);
    }
}

/// Pillow 13's `Image.resize((3, 2), BILINEAR)` of the bytes `(37 * i * i + 11 * i) % 256`, 7 wide and 5 high.
#[test]
fn averaging_is_what_pillow_does() {
    let pixels: Vec<u8> = (0..105u32).map(|i| (37 * i * i + 11 * i) as u8).collect();
    let expected: [u8; 18] =
        [107, 123, 162, 96, 121, 155, 141, 176, 141, 117, 134, 123, 73, 72, 117, 133, 119, 120];
    let found = resize(&pixels, [5, 7], [2, 3], AVERAGING);
    assert!(found.iter().zip(expected).all(|(&found, expected)| found.abs_diff(expected) <= 1), "{found:?}");
}

#[test]
fn resizing_interpolates_between_pixel_centres() {
    let index = (0..5).flat_map(|y| (0..7).flat_map(move |x| (0..3).map(move |c| (c, y, x))));
    let pixels: Vec<u8> = index.map(|(c, y, x)| (100 * c + 10 * y + x) as u8).collect();
    for to in [[10, 14], [3, 4], [5, 21], [1, 1], [16, 2]] {
        let out = resize(&pixels, [5, 7], to, NEAREST2);
        for (i, &found) in out.iter().enumerate() {
            let (channel, y, x) = (i % 3, i / 3 / to[1], i / 3 % to[1]);
            let at = |d: usize, src: usize, dst: usize| {
                ((d as f64 + 0.5) * src as f64 / dst as f64 - 0.5).clamp(0.0, (src - 1) as f64)
            };
            // Linear in both coordinates, so interpolation is exact but for rounding, once in each direction.
            let expected = 100.0 * channel as f64 + 10.0 * at(y, 5, to[0]) + at(x, 7, to[1]);
            assert!(
                (f64::from(found) - expected).abs() < 1.02,
                "{to:?} at {y}, {x}: {found}, expected {expected}"
            );
        }
    }
}

#[test]
fn an_image_that_is_resized_beyond_all_memory_is_an_error() {
    let side = 1 << 28;
    let options = TransformParams { resize: Some(side), crop_size: Some(1), ..TransformParams::default() };
    let misfit = Transform::new(&options, [2, 3, 5], Phase::Test).err().unwrap().to_string();
    assert_eq!(misfit, format!("an image of 3x5 pixels is too large if it is resized to {side}x{side}"));
    // The image between is a small one.
    let options =
        TransformParams { shorter_side: Some(256), crop_size: Some(1), ..TransformParams::default() };
    let transform = Transform::new(&options, [1, 3, 5], Phase::Test).unwrap();
    let (line, mut scratch) = (sample([1, 1, 120_000]), TransformScratch::default());
    let misfit = transform.apply(&line, (1, 0), &mut scratch, &mut [0.0]).unwrap_err();
    assert_eq!(misfit, "an image of 1x120000 pixels is too large if it is resized to 256x30720000");
}

/// A header may announce any width, and its picture is decoded later, if at all.
#[test]
fn what_is_subtracted_takes_no_memory_for_wide_images() {
    let params = TransformParams { mean: Mean::Values(vec![1.0, 2.0, 3.0]), ..TransformParams::default() };
    let transform = Transform::new(&params, [3, 1, 1 << 40], Phase::Test).unwrap();
    assert_eq!(transform.out_shape(), [3, 1, 1 << 40]);
}
