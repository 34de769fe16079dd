//! Image files: lists, folders, decoding and resizing.

use super::read;
use crate::data::decode::{dimensions, is_complete};
use crate::data::{Dataset, ImageData, ImageRecords, Phase, Transform, TransformScratch, check_images};
use crate::spec::{ColorJitter, LayerKind, Mean, NetSpec, TransformParams};
use image::{DynamicImage, GrayImage, ImageBuffer, Luma, Rgb, RgbImage, Rgba, codecs::jpeg::JpegEncoder};
use std::{fs, path::Path};

/// An image whose channels differ and change slowly, so that JPEG keeps them.
fn picture(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| Rgb([(4 * x) as u8, (4 * y) as u8, 128]))
}

fn save_jpeg(path: &Path, image: &RgbImage) {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, 95).encode_image(image).unwrap();
    fs::write(path, bytes).unwrap();
}

fn error<T>(result: Result<T, crate::NetError>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn a_list_is_read_in_order_with_channels_red_green_blue() {
    let folder = tempfile::tempdir().unwrap();
    picture(5, 4).save(folder.path().join("a b.png")).unwrap();
    GrayImage::from_fn(5, 4, |x, _| Luma([x as u8])).save(folder.path().join("grey.png")).unwrap();
    let list = folder.path().join("list.txt");
    fs::write(&list, "\u{feff}a b.png 3\r\n\n  grey.png\t0 \n").unwrap();
    let set = ImageData::open_list(&list, folder.path(), true).unwrap();
    assert_eq!((set.facts().len, set.facts().shape, set.facts().classes), (2, [3, 4, 5], 4));
    let sample = read(&set, 0).unwrap();
    assert_eq!((sample.shape, set.label(0)), ([3, 4, 5], 3));
    assert_eq!(sample.pixels, picture(5, 4).into_raw());
    let grey = read(&set, 1).unwrap();
    assert_eq!(
        (grey.shape, &grey.pixels[..9], &grey.pixels[51..]),
        ([3, 4, 5], &[0, 0, 0, 1, 1, 1, 2, 2, 2][..], &[2, 2, 2, 3, 3, 3, 4, 4, 4][..])
    );
    assert!(set.place(1).ends_with(&format!("grey.png ({}:3)", list.display())), "{}", set.place(1));
}

#[test]
fn grey_reading_weighs_the_colours_and_leaves_grey_alone() {
    let folder = tempfile::tempdir().unwrap();
    RgbImage::from_raw(3, 1, vec![255, 0, 0, 0, 255, 0, 0, 0, 255])
        .unwrap()
        .save(folder.path().join("rgb.png"))
        .unwrap();
    GrayImage::from_raw(3, 1, vec![0, 77, 255]).unwrap().save(folder.path().join("grey.png")).unwrap();
    let list = folder.path().join("list.txt");
    fs::write(&list, "rgb.png 0\ngrey.png 1\n").unwrap();
    let grey = false;
    let set = ImageData::open_list(&list, folder.path(), grey).unwrap();
    assert_eq!((set.facts().shape, read(&set, 0).unwrap().pixels), ([1, 1, 3], vec![76, 150, 29]));
    assert_eq!(read(&set, 1).unwrap().pixels, [0, 77, 255]);
}

#[test]
fn a_jpeg_is_decoded_and_resized() {
    let folder = tempfile::tempdir().unwrap();
    save_jpeg(&folder.path().join("photo.png"), &picture(40, 30)); // told by content, not by name
    let list = folder.path().join("list.txt");
    fs::write(&list, "photo.png 0\n").unwrap();
    let set = ImageData::open_list(&list, folder.path(), true).unwrap();
    assert_eq!(set.facts().shape, [3, 30, 40]);
    let params = TransformParams { new_size: Some([15, 20]), ..TransformParams::default() };
    let transform = Transform::new(&params, set.facts().shape, Phase::Test).unwrap();
    let (mut pixels, draw) = (vec![0.0; 3 * 15 * 20], (1, 0));
    transform.apply(&read(&set, 0).unwrap(), draw, &mut TransformScratch::default(), &mut pixels).unwrap();
    for (y, x) in [(0, 0), (7, 10), (14, 19)] {
        // Halving takes the mean of pixels 2x and 2x + 1, whose values are 8x and 8x + 4.
        let expected = [128, 8 * y + 2, 8 * x + 2];
        let found: [usize; 3] = std::array::from_fn(|channel| pixels[(channel * 15 + y) * 20 + x] as usize);
        let close = expected
            .iter()
            .zip(found)
            .all(|(&expected, found): (&usize, usize)| expected.abs_diff(found) <= 6);
        assert!(close, "at {y}, {x}: {found:?}, expected about {expected:?}");
    }
}

/// Mean, colours' greys and filters that were made for the files of CIFAR-10 meet the same channels in somebody's own
/// images.
#[test]
fn an_image_that_stays_red_green_blue_is_as_in_a_file_of_cifar_10() {
    let folder = tempfile::tempdir().unwrap();
    let picture = RgbImage::from_fn(32, 32, |x, y| Rgb([(7 * x) as u8, (5 * y) as u8, (x * y) as u8]));
    picture.save(folder.path().join("one.png")).unwrap();
    fs::write(folder.path().join("list.txt"), "one.png 3\n").unwrap();
    let planes = (0..3).flat_map(|channel| picture.pixels().map(move |pixel| pixel.0[channel]));
    let record: Vec<u8> = std::iter::once(3).chain(planes).collect();
    fs::write(folder.path().join("test_batch.bin"), record).unwrap();
    let image = ImageData::open_list(&folder.path().join("list.txt"), folder.path(), true).unwrap();
    let record = ImageRecords::open(folder.path(), Phase::Test).unwrap();
    let params = TransformParams {
        crop_size: Some(24),
        mirror: true,
        mean: Mean::Values(vec![125.0, 120.0, 110.0]),
        std: vec![50.0, 60.0, 70.0],
        color_jitter: ColorJitter { brightness: 0.2, contrast: 0.4, saturation: 0.8, hue: 0.2 },
        is_rgb: true,
        ..TransformParams::default()
    };
    let transformed = |set: &dyn Dataset, params: &TransformParams| {
        let transform = Transform::new(params, set.facts().shape, Phase::Train).unwrap();
        let (mut out, draw) = (vec![0.0; 3 * 24 * 24], (1, 5));
        let mut scratch = TransformScratch::default();
        transform.apply(&read(set, 0).unwrap(), draw, &mut scratch, &mut out).unwrap();
        out
    };
    let expected = transformed(&record, &params);
    assert_eq!(transformed(&image, &params), expected);
    assert_ne!(transformed(&image, &TransformParams { is_rgb: false, ..params }), expected);
}

/// What the crate `image` makes of them: transparency is ignored, palettes are looked up. Of 16 bits the upper 8 count, as
/// in OpenCV and hence in Caffe, where that crate would take the nearest 8.
#[test]
fn pictures_of_every_kind_are_decoded_as_another_program_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let picture = |x: u32, y: u32| {
        Rgba([9 * x as u16, y as u16, x as u16 ^ y as u16, 7].map(|part| part.wrapping_mul(2903)))
    };
    let deep: DynamicImage = ImageBuffer::<Rgba<u16>, _>::from_fn(31, 17, picture).into();
    let mut names = vec![];
    let kinds: [(&str, DynamicImage); 8] = [
        ("l8", deep.to_luma8().into()),
        ("la8", deep.to_luma_alpha8().into()),
        ("rgb8", deep.to_rgb8().into()),
        ("rgba8", deep.to_rgba8().into()),
        ("l16", deep.to_luma16().into()),
        ("la16", deep.to_luma_alpha16().into()),
        ("rgb16", deep.to_rgb16().into()),
        ("rgba16", deep.clone()),
    ];
    for (name, picture) in &kinds {
        names.push(format!("{name}.png"));
        picture.save(file(&names[names.len() - 1])).unwrap();
    }
    for (name, picture) in [&kinds[0], &kinds[2]] {
        names.push(format!("{name}.jpg"));
        picture.save(file(&names[names.len() - 1])).unwrap();
    }
    names.push("palette.png".to_owned());
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 4, 2);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Two);
    encoder.set_palette(&[1, 2, 3, 40, 50, 60, 100, 110, 120, 255, 250, 245]);
    encoder.write_header().unwrap().write_image_data(&[0b00_01_10_11, 0b11_10_01_00]).unwrap();
    fs::write(file("palette.png"), bytes).unwrap();
    for name in names {
        fs::write(file("list"), format!("{name} 0")).unwrap();
        let expected = image::open(file(&name)).unwrap();
        let grey = expected.color().channel_count() < 3;
        let rgb = match name.contains("16") {
            true => {
                let upper = expected.to_rgb16().into_raw().into_iter().map(|value| (value >> 8) as u8);
                RgbImage::from_raw(expected.width(), expected.height(), upper.collect()).unwrap()
            }
            false => expected.to_rgb8(),
        };
        let weighed = |&Rgb([r, g, b]): &Rgb<u8>| {
            (0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b)).round() as u8
        };
        for is_color in [true, false] {
            let set = ImageData::open_list(&file("list"), folder.path(), is_color).unwrap();
            let found = read(&set, 0).unwrap();
            let expected: Vec<u8> = match is_color {
                true => rgb.as_raw().clone(),
                false if grey => rgb.pixels().map(|pixel| pixel.0[0]).collect(),
                false if name.contains("16") => {
                    rgb.save(file("upper.png")).unwrap();
                    fs::write(file("list of one"), "upper.png 0").unwrap();
                    let upper = ImageData::open_list(&file("list of one"), folder.path(), false).unwrap();
                    read(&upper, 0).unwrap().pixels
                }
                false => rgb.pixels().map(weighed).collect(),
            };
            assert_eq!(found.shape[1..], [rgb.height() as usize, rgb.width() as usize], "{name}");
            assert_eq!(found.pixels, expected, "{name}, {is_color}");
        }
    }
}

#[test]
fn folders_are_classes_in_the_order_of_their_names() {
    let root = tempfile::tempdir().unwrap();
    for (class, file) in [("b", "2.png"), ("b", "1.PNG"), ("a", "z.jpeg"), ("c", "x.jpg")] {
        fs::create_dir_all(root.path().join(class)).unwrap();
        save_jpeg(&root.path().join(class).join(file), &picture(8, 8));
    }
    fs::write(root.path().join("README"), "not a class").unwrap();
    fs::write(root.path().join("b/.hidden"), "not an image").unwrap();
    let open = |folder: &Path| ImageData::open_folder(folder, true);
    let set = open(root.path()).unwrap();
    let names: Vec<(String, u32)> = (0..set.facts().len)
        .map(|index| (set.place(index).rsplit('/').next().unwrap().to_owned(), set.label(index)))
        .collect();
    let expected = [("z.jpeg", 0), ("1.PNG", 1), ("2.png", 1), ("x.jpg", 2)];
    assert_eq!(names, expected.map(|(name, label)| (name.to_owned(), label)));
    assert_eq!(set.facts().classes, 3);
    assert_eq!(set.class_names(), ["a", "b", "c"]);
    assert!(set.is_by_class());

    fs::write(root.path().join("c/notes.txt"), "").unwrap();
    assert!(error(open(root.path())).contains("notes.txt: is not named like an image"));
    fs::remove_file(root.path().join("c/notes.txt")).unwrap();
    fs::create_dir(root.path().join("d")).unwrap();
    assert!(error(open(root.path())).contains("d: this class has no images"));
    assert!(error(open(&root.path().join("a"))).contains("holds no folder per class"));
}

/// A training that is resumed elsewhere goes on with the same set; other files in the same order are another.
#[test]
fn a_set_is_known_by_its_names_wherever_it_lies() {
    let [one, two] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let digest = |folder: &Path, list: &str| {
        ["a.png", "b.png"].iter().for_each(|name| picture(4, 4).save(folder.join(name)).unwrap());
        fs::write(folder.join("list.txt"), list).unwrap();
        ImageData::open_list(&folder.join("list.txt"), folder, true).unwrap().digest()
    };
    let first = digest(one.path(), "a.png 0\nb.png 0\n");
    assert_eq!(digest(two.path(), "a.png 0\nb.png 0\n"), first);
    assert_ne!(digest(two.path(), "b.png 0\na.png 0\n"), first);
}

#[test]
fn bad_lists_are_refused_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    picture(4, 4).save(folder.path().join("ok.png")).unwrap();
    let list = folder.path().join("list.txt");
    let open = |text: &str| {
        fs::write(&list, text).unwrap();
        error(ImageData::open_list(&list, folder.path(), true))
    };
    for (text, expected) in [
        ("", "list.txt: lists no images"),
        ("ok.png 0\n\nok.png\n", "list.txt:3: expected a path and a label, found \"ok.png\""),
        (
            "ok.png 0\nok.png -1\n",
            "list.txt:2: the label must be a whole number from 0 to 16777216, found \"-1\"",
        ),
        (
            "ok.png 16777216\nok.png 16777217\n",
            "list.txt:2: the label must be a whole number from 0 to 16777216",
        ),
        ("ok.png 1.5\n", "list.txt:1: the label must be a whole number"),
        ("missing.png 0\n", "missing.png ("),
    ] {
        assert!(open(text).contains(expected), "{}", open(text));
    }
}

#[test]
fn unreadable_images_are_errors_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    picture(32, 32).save(at("ok.png")).unwrap();
    save_jpeg(&at("ok.jpg"), &picture(32, 32));
    fs::write(at("text.png"), "hello").unwrap();
    fs::write(at("empty.png"), "").unwrap();
    let mut lines = "ok.png 0\ntext.png 0\nempty.png 0\nmissing.png 0\n".to_owned();
    for name in ["ok.png", "ok.jpg"] {
        let bytes = fs::read(at(name)).unwrap();
        for (part, length) in [("head", 30), ("half", bytes.len() / 2), ("tail", bytes.len() - 20)] {
            let cut = format!("{part}-{name}");
            fs::write(at(&cut), &bytes[..length]).unwrap();
            lines += &format!("{cut} 0\n");
        }
    }
    fs::write(at("list.txt"), lines).unwrap();
    let list = |side: usize| {
        let text = format!(
            "layer {{ name: 'd' type: 'ImageData' top: 'd' top: 'l' transform_param {{ crop_size: {side} mean_file: 'm' }} }}"
        );
        let kind = NetSpec::parse(Path::new("net"), &text).unwrap().layers.remove(0).kind;
        let LayerKind::ImageData(params) = kind else { panic!() };
        let files = ["ok.png", "half-ok.png"].map(at);
        check_images(&files, &params)
            .into_iter()
            .map(|checked| checked.map_err(|e| e.to_string()))
            .collect::<Vec<_>>()
    };
    assert!(list(32)[0].is_ok() && list(32)[1].is_err());
    let small = format!(
        "{}: the image is 32x32 (width x height), too small for crop_size 33",
        at("ok.png").display()
    );
    assert_eq!(list(33)[0], Err(small));
    let set = ImageData::open_list(&at("list.txt"), folder.path(), true).unwrap();
    read(&set, 0).unwrap();
    for index in 1..set.facts().len {
        let error = error(read(&set, index));
        assert!(error.contains(&format!("list.txt:{}", index + 1)) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn no_truncation_of_a_png_has_a_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.png");
    RgbImage::from_fn(40, 30, |x, y| Rgb([(x * y) as u8, 5, 7])).save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(dimensions(&path), Ok([30, 40]));
    for length in 0..bytes.len() - 4 {
        fs::write(&path, &bytes[..length]).unwrap();
        assert!(dimensions(&path).is_err(), "length {length}");
    }
}

#[test]
fn no_truncation_of_a_jpeg_is_complete() {
    let mut bytes = Vec::new();
    let image = RgbImage::from_fn(40, 30, |x, y| Rgb([(x * y) as u8, (5 * x) as u8, (7 * y) as u8]));
    JpegEncoder::new(&mut bytes).encode_image(&image).unwrap();
    // As cameras do, with a thumbnail within, and with something behind that looks like the beginning of a scan.
    let mut with_thumbnail = vec![0xff, 0xd8, 0xff, 0xe1];
    with_thumbnail.extend((bytes.len() as u16 + 2).to_be_bytes());
    with_thumbnail.extend([&bytes[..], &bytes[2..]].concat());
    for bytes in [bytes, with_thumbnail] {
        assert!(is_complete(&bytes));
        for length in 0..bytes.len() {
            assert!(!is_complete(&bytes[..length]), "length {length}");
        }
        assert!(is_complete(&[&bytes[..], b"appended by a camera \xff\xda"].concat()));
    }
}
