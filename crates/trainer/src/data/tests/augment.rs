//! What Caffe's transformation lacks: a divisor of each channel, random regions, turning, changes of colours.

use crate::data::augment::{jitter, region, rotate};
use crate::data::{Phase, Sample, Transform, TransformScratch};
use crate::spec::{ColorJitter, Mean, TransformParams};
use rand_chacha::ChaCha8Rng;
use tensor::rng;

/// A generator for each of many draws.
fn draws() -> impl Iterator<Item = ChaCha8Rng> {
    (0..400).map(|draw| rng::stream(3, draw))
}

fn apply(params: &TransformParams, sample: &Sample, phase: Phase, position: u64) -> Vec<f32> {
    let transform = Transform::new(params, sample.shape, phase).unwrap();
    let mut out = vec![f32::NAN; transform.out_shape().iter().product()];
    transform.apply(sample, (5, position), &mut TransformScratch::default(), &mut out).unwrap();
    out
}

fn noise(shape: [usize; 3]) -> Sample {
    let pixels = (0..shape.iter().product()).map(|at: usize| (at * at * 37 + at * 11) as u8).collect();
    Sample { pixels, shape }
}

#[test]
fn each_channel_has_its_mean_and_divisor_in_the_order_blue_green_red() {
    let red_green_blue = Sample { pixels: vec![10, 20, 30], shape: [3, 1, 1] };
    let params = TransformParams {
        mean: Mean::Values(vec![1.0, 2.0, 3.0]),
        scale: 0.5,
        std: vec![4.0, 2.0, 0.5],
        ..TransformParams::default()
    };
    assert_eq!(apply(&params, &red_green_blue, Phase::Test, 0), [29.0 / 8.0, 18.0 / 4.0, 7.0]);
    let one = TransformParams { std: vec![2.0], ..TransformParams::default() };
    assert_eq!(apply(&one, &red_green_blue, Phase::Train, 0), [15.0, 10.0, 5.0]);
    let two = TransformParams { std: vec![2.0, 1.0], ..TransformParams::default() };
    let error = Transform::new(&two, [3, 1, 1], Phase::Test).err().unwrap().to_string();
    assert_eq!(error, "2 std_value given for images of 3 channels; give none, one or 3");
}

#[test]
fn the_shorter_side_is_resized_and_the_aspect_kept() {
    let params = TransformParams { shorter_side: Some(8), crop_size: Some(8), ..TransformParams::default() };
    for shape in [[3, 16, 40], [3, 40, 16], [3, 4, 8], [3, 8, 8]] {
        assert_eq!(apply(&params, &noise(shape), Phase::Test, 0).len(), 3 * 8 * 8);
    }
    let whole = TransformParams { crop_size: None, ..params };
    assert_eq!(Transform::new(&whole, [3, 16, 40], Phase::Test).unwrap().out_shape(), [3, 8, 20]);
    assert_eq!(Transform::new(&whole, [3, 47, 10], Phase::Test).unwrap().out_shape(), [3, 37, 8]);
}

#[test]
fn regions_have_the_areas_and_aspects_that_are_asked_for_and_lie_everywhere() {
    let (size, min_area, max_aspect) = ([300, 400], 0.08, 4.0 / 3.0);
    let (mut areas, mut touched) = (Vec::new(), [0; 4]);
    for mut rng in draws() {
        let region = region(&mut rng, size, min_area, max_aspect);
        let [height, width] = region.size.map(|side| side as f32);
        let aspect = height.max(width) / height.min(width);
        assert!(aspect < max_aspect * 1.02, "{region:?}");
        let [bottom, right] = [region.top + region.size[0], region.left + region.size[1]];
        assert!(bottom <= size[0] && right <= size[1], "{region:?}");
        let corners =
            [(region.top, region.left), (region.top, right), (bottom, region.left), (bottom, right)];
        for (count, (y, x)) in touched.iter_mut().zip(corners) {
            *count += u32::from(y.abs_diff(size[0] / 2) > 100 && x.abs_diff(size[1] / 2) > 130);
        }
        areas.push(height * width / (300.0 * 400.0));
    }
    let (low, high) =
        areas.iter().fold((1.0f32, 0.0f32), |(low, high), &area| (low.min(area), high.max(area)));
    assert!((0.075..0.13).contains(&low) && (0.7..=1.0).contains(&high), "{low} to {high}");
    assert!(touched.iter().all(|&count| count > 40), "{touched:?}");
    // No region of this area has such an aspect here: the middle.
    let long = region(&mut rng::stream(1, 0), [10, 1000], 0.9, 2.0);
    assert_eq!((long.size, long.top, long.left), ([10, 20], 0, 490));
}

#[test]
fn training_crops_random_areas_to_the_size_and_testing_the_centre() {
    let params = TransformParams { min_area: Some(0.2), crop_size: Some(6), ..TransformParams::default() };
    // Grey of the place, so that a mean tells where a crop lies.
    let pixels = (0..20 * 30).flat_map(|at| [(at % 30 * 8) as u8; 3]).collect();
    let sample = Sample { pixels, shape: [3, 20, 30] };
    let mean = |image: &[f32]| image.iter().sum::<f32>() / image.len() as f32;
    let means: Vec<f32> = (0..50).map(|draw| mean(&apply(&params, &sample, Phase::Train, draw))).collect();
    assert!(means.iter().any(|&mean| mean < 90.0) && means.iter().any(|&mean| mean > 140.0), "{means:?}");
    assert!((0..50).all(|draw| mean(&apply(&params, &sample, Phase::Test, draw)) == 116.0));
    // Of an image smaller than the crop a part is enlarged; its centre is not there.
    let small = Sample { pixels: vec![90; 3 * 4 * 5], shape: [3, 4, 5] };
    assert!((0..50).all(|draw| apply(&params, &small, Phase::Train, draw) == [90.0; 3 * 6 * 6]));
    assert!(Transform::new(&params, small.shape, Phase::Test).is_err());
    let image = TransformParams { mean: Mean::File("mean".into()), ..params };
    assert!(Transform::new(&image, [3, 20, 30], Phase::Test).is_err());
}

/// The picture is a slope: turned by a, it is a slope in another direction, as steep.
#[test]
fn turning_turns_about_the_middle_by_no_more_than_asked() {
    const SIDE: usize = 61;
    let slope: Vec<u8> = (0..SIDE * SIDE).map(|at| (2 * (at % SIDE) + 60) as u8).collect();
    let mut largest = 0.0f32;
    for mut rng in draws() {
        let mut turned = Vec::new();
        rotate(&mut rng, &slope, ([SIDE; 2], 1), 30.0, &mut turned);
        let at = |y: usize, x: usize| f32::from(turned[y * SIDE + x]) - 120.0;
        let (along, down) = (at(30, 50) / 40.0, at(50, 30) / 40.0);
        assert!((along * along + down * down - 1.0).abs() < 0.05, "{along}, {down}");
        for (y, x) in [(30, 30), (15, 40), (45, 20), (40, 44)] {
            let expected = 2.0 * (along * (x as f32 - 30.0) + down * (y as f32 - 30.0));
            assert!((at(y, x) - expected).abs() < 2.0, "{y}, {x}: {} and {expected}", at(y, x));
        }
        assert!(down.abs() < 0.53, "a sine of at most 30 degrees: {down}");
        largest = largest.max(down.abs());
    }
    assert!(largest > 0.45, "{largest}");
}

#[test]
fn colours_change_in_the_one_way_that_is_asked_for() {
    // Neither black nor white is near, so that nothing is cut off.
    let pixels: Vec<u8> = (0..300u32).map(|at| (at * at * 7 % 61 + 100) as u8).collect();
    let changed = |params: ColorJitter, rng: &mut ChaCha8Rng| {
        let mut pixels = pixels.clone();
        jitter(rng, &params, &mut pixels, 3);
        pixels
    };
    let grey = |pixel: &[u8; 3]| {
        0.299 * f32::from(pixel[0]) + 0.587 * f32::from(pixel[1]) + 0.114 * f32::from(pixel[2])
    };
    let greys = |pixels: &[u8]| pixels.as_chunks::<3>().0.iter().map(grey).collect::<Vec<f32>>();
    let mean = |values: &[f32]| values.iter().sum::<f32>() / values.len() as f32;
    let sums = |pixels: &[u8]| {
        pixels
            .as_chunks::<3>()
            .0
            .iter()
            .map(|p| f32::from(p[0]) + f32::from(p[1]) + f32::from(p[2]))
            .collect::<Vec<f32>>()
    };
    let close = |a: &[f32], b: &[f32], by: f32| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= by);
    let none = ColorJitter::default();
    let mut different = [0; 4];
    for mut rng in draws() {
        let bright = changed(ColorJitter { brightness: 0.4, ..none }, &mut rng);
        let factor = mean(&greys(&bright)) / mean(&greys(&pixels));
        assert!((0.59..1.41).contains(&factor), "{factor}");
        assert!(
            bright
                .iter()
                .zip(&pixels)
                .all(|(&new, &old)| (f32::from(new) - factor * f32::from(old)).abs() < 1.5)
        );
        let contrast = changed(ColorJitter { contrast: 0.4, ..none }, &mut rng);
        assert!((mean(&greys(&contrast)) - mean(&greys(&pixels))).abs() < 0.6);
        let saturated = changed(ColorJitter { saturation: 0.4, ..none }, &mut rng);
        assert!(close(&greys(&saturated), &greys(&pixels), 0.6));
        let turned = changed(ColorJitter { hue: 0.1, ..none }, &mut rng);
        assert!(close(&sums(&turned), &sums(&pixels), 1.6));
        for (count, new) in different.iter_mut().zip([bright, contrast, saturated, turned]) {
            *count += u32::from(new != pixels);
        }
        assert_eq!(changed(none, &mut rng), pixels);
        let mut same = vec![77; 30];
        jitter(&mut rng, &ColorJitter { saturation: 1.0, hue: 0.5, contrast: 1.0, ..none }, &mut same, 3);
        assert_eq!(same, [77; 30], "greys have no colour to change, and no contrast");
    }
    assert!(different.iter().all(|&count| count > 350), "{different:?}");
}

#[test]
fn tests_see_images_as_they_are() {
    let plain = TransformParams { crop_size: Some(5), ..TransformParams::default() };
    let random = TransformParams {
        min_area: Some(0.1),
        mirror_vertically: true,
        rotation: 90.0,
        color_jitter: ColorJitter { brightness: 1.0, contrast: 1.0, saturation: 1.0, hue: 0.5 },
        ..plain.clone()
    };
    let sample = noise([3, 9, 11]);
    let expected = apply(&plain, &sample, Phase::Test, 0);
    assert!((0..20).all(|draw| apply(&random, &sample, Phase::Test, draw) == expected));
    let trained: Vec<_> = (0..20).map(|draw| apply(&random, &sample, Phase::Train, draw)).collect();
    assert!((1..20).all(|draw| trained[draw] != trained[draw - 1]));
    // Half of the images are upside down.
    let upside_down = TransformParams { mirror_vertically: true, ..TransformParams::default() };
    let whole = apply(&TransformParams::default(), &sample, Phase::Test, 0);
    let rows =
        |image: &[f32]| image.chunks(99).flat_map(|plane| plane.rchunks(11)).flatten().copied().collect();
    let reflected: Vec<f32> = rows(&whole);
    let found: Vec<_> = (0..100).map(|draw| apply(&upside_down, &sample, Phase::Train, draw)).collect();
    assert!(found.iter().all(|image| *image == whole || *image == reflected));
    assert!((30..70).contains(&found.iter().filter(|image| **image == reflected).count()));
}
