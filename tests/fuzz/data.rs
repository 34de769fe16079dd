//! Data sets: IDX, CIFAR-10, images and lists of them, mean images.

use crate::harness::{Accepted, Input, Random, Verdict, fuzz};
use crate::mutate::{Corpus, below, extreme, one_in, pick};
use flate2::{Compression, Crc, write::GzEncoder};
use microbatch::trainer::data::{
    Dataset, ImageData, ImageRecords, Loader, LoaderOptions, Phase, Transform, read_mean,
};
use microbatch::trainer::group::Share;
use microbatch::trainer::spec::{ColorJitter, Mean, TransformParams};
use png::{BitDepth, ColorType};
use std::io::{Cursor, Write};
use std::{fs, sync::Arc};
use tensor::{Cpu, Device, ViewMut};

/// Most elements of a mini-batch that is made here.
const MOST: usize = 1 << 18;

/// Four images of 6x6.
pub(crate) fn idx_images() -> Vec<u8> {
    let pixels = (0..4 * 36).map(|at| (at * 7) as u8);
    [0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0, 6].into_iter().chain(pixels).collect()
}

pub(crate) fn idx_labels() -> Vec<u8> {
    vec![0, 0, 8, 1, 0, 0, 0, 4, 0, 1, 2, 0]
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

/// A few bytes that unpack to `header` and `mib` MiB of zeros.
fn bomb(header: &[u8], mib: usize) -> Vec<u8> {
    gzipped(&[header, &vec![0; mib << 20]].concat())
}

/// A damaged file of `corpus`, some packed before or after.
fn damaged(corpus: &Corpus, bomb: &[u8], random: &mut Random) -> Vec<u8> {
    let bytes = corpus.bytes(random);
    match below(random, 400) {
        0 => bomb.to_vec(),
        1..=99 => gzipped(&bytes),
        100..=119 => Corpus::new([gzipped(&bytes)]).bytes(random),
        _ => bytes,
    }
}

fn transform(random: &mut Random) -> TransformParams {
    let side = |random: &mut Random| {
        let sensible = (1 + below(random, 8)).to_string();
        let side = if one_in(random, 8) { extreme(random).to_owned() } else { sensible };
        one_in(random, 3).then(|| side.parse().ok()).flatten()
    };
    let part = |random: &mut Random| if one_in(random, 3) { below(random, 101) as f32 / 100.0 } else { 0.0 };
    let resize = side(random).filter(|&side| side <= 1 << 16);
    let crop_size = side(random);
    let mean_values = [&[0.0][..], &[128.0], &[1.0, 2.0, 3.0]][below(random, 3)];
    TransformParams {
        mirror: one_in(random, 2),
        crop_size,
        // A net file cannot ask for more.
        resize,
        shorter_side: side(random).filter(|&side| side <= 1 << 16 && resize.is_none()),
        min_area: crop_size.map(|_| 0.01 + part(random) * 0.99).filter(|_| one_in(random, 2)),
        max_aspect: 1.0 + 99.0 * part(random),
        mirror_vertically: one_in(random, 4),
        rotation: 180.0 * part(random),
        color_jitter: ColorJitter {
            brightness: part(random),
            contrast: part(random),
            saturation: part(random),
            hue: part(random) / 2.0,
        },
        mean: Mean::Values(mean_values.to_vec()),
        ..TransformParams::default()
    }
}

/// Reads two mini-batches of a set.
fn use_up(set: Arc<dyn Dataset>, input: &mut Input<'_>) -> Verdict {
    let resident = set.facts().resident_bytes;
    input.foretold += resident;
    set.check_labels(set.facts().classes, None)?;
    let random = &mut input.random;
    let phase = *pick(random, &[Phase::Train, Phase::Test]);
    let shuffle = one_in(random, 2);
    let options = LoaderOptions { mini_batch: 2, phase, seed: 0, shuffle, share: Share::default() };
    let mut loader = Loader::new(set, &transform(random), options, &Device::Cpu(Cpu::new(1)))?;
    if one_in(random, 8) {
        loader.set_position(extreme(random).parse().unwrap_or(3).min(1 << 53));
    }
    let len = loader.out_shape().iter().try_fold(2usize, |len, &extent| len.checked_mul(extent));
    let Some(len) = len.filter(|&len| len <= MOST) else { return Ok(Accepted::Huge) };
    input.foretold += loader.host_bytes() - resident + (len * size_of::<f32>()) as u64;
    let (mut data, mut labels) = (vec![0.0; len], [0.0; 2]);
    loader.upload(ViewMut::of(&mut data), Some(ViewMut::of(&mut labels)))?;
    loader.upload(ViewMut::of(&mut data), Some(ViewMut::of(&mut labels)))?;
    Ok(Accepted::Used)
}

#[test]
fn idx() {
    let corpus = Corpus::new([idx_images(), idx_images(), idx_labels()]);
    let bomb = bomb(&idx_images(), 64);
    let folder = tempfile::tempdir().unwrap();
    let [images, labels] =
        ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"].map(|name| folder.path().join(name));
    fuzz(
        "idx",
        1500,
        |random| damaged(&corpus, &bomb, random),
        |input| {
            let are_labels = input.bytes.get(3) == Some(&1);
            fs::write(&images, if are_labels { idx_images() } else { input.bytes.to_vec() })?;
            fs::write(&labels, if are_labels { input.bytes.to_vec() } else { idx_labels() })?;
            use_up(Arc::new(ImageRecords::open(folder.path(), Phase::Train)?), input)
        },
    );
}

#[test]
fn cifar() {
    let record = |label: u8| [vec![label], vec![label * 20; 3072]].concat();
    let corpus = Corpus::new([record(3), [record(0), record(9)].concat()]);
    let bomb = bomb(&record(1), 448);
    let folder = tempfile::tempdir().unwrap();
    // Most damage is to the length, which is looked at first.
    let make = |random: &mut Random| {
        let mut bytes = damaged(&corpus, &bomb, random);
        if one_in(random, 2) {
            bytes.resize(3073 * (1 + below(random, 3)), 1);
        }
        bytes
    };
    fuzz("cifar", 1000, make, |input| {
        // Nothing says how many records there are: as many as there are in the whole set may be read.
        input.foretold = 60_000 * 3073;
        fs::write(folder.path().join("test_batch.bin"), input.bytes)?;
        use_up(Arc::new(ImageRecords::open(folder.path(), Phase::Test)?), input)
    });
}

/// A small picture of every kind.
fn pictures() -> Vec<Vec<u8>> {
    let kinds = [
        (ColorType::Grayscale, BitDepth::Eight),
        (ColorType::Rgb, BitDepth::Eight),
        (ColorType::Rgba, BitDepth::Eight),
        (ColorType::Grayscale, BitDepth::Sixteen),
        (ColorType::GrayscaleAlpha, BitDepth::Eight),
        (ColorType::Indexed, BitDepth::Two),
    ];
    let encoded = |(color, depth)| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 9, 7);
        encoder.set_color(color);
        encoder.set_depth(depth);
        encoder.set_palette(&[0, 0, 0, 90, 80, 70, 160, 255, 1, 255, 255, 255]);
        let row = (9 * color.samples() * depth as usize).div_ceil(8);
        let rows = (0..7 * row).map(|at| (at * 5) as u8).collect::<Vec<u8>>();
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&rows));
        written.expect("memory takes everything");
        bytes
    };
    // Of 9x7 pixels, by the encoder of the crate image at its default quality.
    let jpeg = [&include_bytes!("grey.jpg")[..], include_bytes!("color.jpg")].map(<[u8]>::to_vec);
    kinds.into_iter().map(encoded).chain(jpeg).collect()
}

/// Makes the checksum of every chunk of a PNG right again.
fn mend_checksums(png: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = png.get(at..at + 4) {
        let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
        let Some(chunk) = png.get(at + 4..at + 8 + length) else { return };
        let mut crc = Crc::new();
        crc.update(chunk);
        let Some(place) = png.get_mut(at + 8 + length..at + 12 + length) else { return };
        place.copy_from_slice(&crc.sum().to_be_bytes());
        at += 12 + length;
    }
}

/// Pictures that take more are not decoded here: theirs are seconds of work.
const MOST_DECODED: u64 = 1 << 30;

/// What decoding a picture takes: its samples as they are stored, of up to 16 bits, and as bytes.
fn decoded_bytes(bytes: &[u8]) -> u64 {
    let size = match bytes.starts_with(&[0xff, 0xd8]) {
        true => {
            let mut decoder = zune_jpeg::JpegDecoder::new(Cursor::new(bytes));
            decoder.decode_headers().ok().and_then(|()| decoder.dimensions())
        }
        false => {
            let info = png::Decoder::new(Cursor::new(bytes)).read_info();
            info.ok().map(|reader| (reader.info().width as usize, reader.info().height as usize))
        }
    };
    size.map_or(0, |(width, height)| 12u64.saturating_mul(width as u64 * height as u64))
}

#[test]
fn images() {
    let corpus = Corpus::new(pictures());
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    fs::write(&list, "picture 0\npicture 3\n").unwrap();
    let make = |random: &mut Random| {
        let mut bytes = corpus.bytes(random);
        if !one_in(random, 8) {
            mend_checksums(&mut bytes);
        }
        bytes
    };
    fuzz("images", 2000, make, |input| {
        fs::write(folder.path().join("picture"), input.bytes)?;
        input.foretold = decoded_bytes(input.bytes);
        let set = ImageData::open_list(&list, folder.path(), one_in(&mut input.random, 2))?;
        if input.foretold > MOST_DECODED {
            return Ok(Accepted::Huge);
        }
        use_up(Arc::new(set), input)
    });
}

#[test]
fn lists() {
    let corpus = Corpus::new(["a.png 0\nb.jpg 1\n\n  a.png 2  \n", "b.jpg 16777217"]);
    let folder = tempfile::tempdir().unwrap();
    let pictures = pictures();
    fs::write(folder.path().join("a.png"), &pictures[0]).unwrap();
    fs::write(folder.path().join("b.jpg"), pictures.last().expect("a JPEG")).unwrap();
    fuzz(
        "lists",
        2000,
        |random| corpus.text(random),
        |input| {
            let set = ImageData::open_list(input.path, folder.path(), one_in(&mut input.random, 2))?;
            use_up(Arc::new(set), input)
        },
    );
}

#[test]
fn means() {
    let new = [&[0x3a, 4, 8, 1, 8, 1, 8, 1, 8, 2, 0x2a, 8][..], &[0; 8]].concat();
    let old = [&[8, 1, 16, 1, 24, 1, 32, 1, 0x2d][..], &[0; 4]].concat();
    let corpus = Corpus::new([[&[0x3a, 8][..], &new[2..]].concat(), new, old]);
    fuzz(
        "means",
        3000,
        |random| corpus.bytes(random),
        |input| {
            let (shape, _) = read_mean(input.path)?;
            let mean = Mean::File(input.path.to_owned());
            Transform::new(&TransformParams { mean, ..TransformParams::default() }, shape, Phase::Test)?;
            Ok(Accepted::Used)
        },
    );
}
