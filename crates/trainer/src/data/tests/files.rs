//! IDX and CIFAR-10 files, sound and damaged, and what stands in for a set.

use super::{digits, idx_bytes, read};
use crate::data::{Dataset, DatasetFacts, ImageRecords, Phase, StandIn, records::read_idx};
use flate2::{Compression, write::GzEncoder};
use std::io::{Read, Write};
use std::{fs, path::Path};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn the_shipped_digits_are_complete() {
    for (phase, len, first_label) in [(Phase::Train, 1197, None), (Phase::Test, 300, Some(8))] {
        let set = ImageRecords::open(&digits(), phase).unwrap();
        assert_eq!((set.facts().len, set.facts().shape, set.facts().classes), (len, [1, 8, 8], 10));
        let mut counts = [0; 10];
        (0..len).for_each(|index| counts[set.label(index) as usize] += 1);
        assert!(counts.iter().all(|&count| count > len / 20), "{counts:?}");
        if let Some(label) = first_label {
            assert_eq!(set.label(0), label);
        }
        set.check_labels(10, None).unwrap();
    }
}

#[test]
fn the_first_digit_is_the_first_of_the_file() {
    let first = read(&ImageRecords::open(&digits(), Phase::Train).unwrap(), 0).unwrap();
    assert_eq!(
        first.pixels[..16],
        [0, 0, 0xaf, 0xff, 0xef, 0x30, 0, 0, 0, 0x50, 0xff, 0xbf, 0xaf, 0xcf, 0, 0]
    );
}

#[test]
fn idx_pairs_are_found_by_name_and_read_plain_or_gzipped() {
    let images = idx_bytes(0x803, &[2, 2, 3], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    let labels = idx_bytes(0x801, &[2], &[4, 0]);
    for (images_name, labels_name, gzip_images, gzip_labels) in [
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", false, false),
        ("train-images.idx3-ubyte.gz", "train-labels.idx1-ubyte.gz", true, true),
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz", false, true),
        ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte", false, true), // told by content, not by name
    ] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at(images_name), if gzip_images { gzip(&images) } else { images.clone() }).unwrap();
        fs::write(at(labels_name), if gzip_labels { gzip(&labels) } else { labels.clone() }).unwrap();
        let set = ImageRecords::open(folder.path(), Phase::Train).unwrap();
        assert_eq!(
            (set.facts().len, set.facts().shape, set.facts().classes),
            (2, [1, 2, 3], 5),
            "{images_name}"
        );
        let sample = read(&set, 1).unwrap();
        assert_eq!((&sample.pixels[..], set.label(1)), (&[7, 8, 9, 10, 11, 12][..], 0));
        let error = ImageRecords::open(folder.path(), Phase::Test).unwrap_err().to_string();
        assert!(error.contains("t10k-images"), "{error}");
    }
}

/// Opens the two byte strings as an IDX pair; the error as text.
fn idx_error(images: &[u8], labels: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train-images"), images).unwrap();
    fs::write(folder.path().join("train-labels"), labels).unwrap();
    ImageRecords::open(folder.path(), Phase::Train).err().map_or_else(String::new, |error| error.to_string())
}

#[test]
fn damaged_idx_files_are_refused_with_the_name_of_the_file() {
    let images = idx_bytes(0x803, &[2, 2, 2], &[0; 8]);
    let labels = idx_bytes(0x801, &[2], &[0, 1]);
    assert_eq!(idx_error(&images, &labels), "");
    let table: [(&[u8], &[u8], &str); 9] = [
        (&labels, &labels, "train-images: expected the magic number 0x00000803 of IDX, found 0x00000801"),
        (&images, &images, "train-labels: expected the magic number 0x00000801 of IDX, found 0x00000803"),
        (&images[..3], &labels, "train-images: failed to fill"),
        (&images[..12], &labels, "train-images: failed to fill"),
        (&images[..23], &labels, "train-images: its header announces 8 elements, but it holds 7"),
        (
            &[&images[..], &[0]].concat(),
            &labels,
            "train-images: its header announces 8 elements, but it holds more",
        ),
        (&images, &idx_bytes(0x801, &[3], &[0; 3]), "train-images holds 2 images of 2x2, but "),
        (
            &idx_bytes(0x803, &[u32::MAX; 3], &[]),
            &labels,
            "train-images: its header announces 18446744073709551615 elements, but it holds 0",
        ),
        (&idx_bytes(0x803, &[0, 2, 2], &[]), &idx_bytes(0x801, &[0], &[]), "train-images holds 0 images"),
    ];
    for (images, labels, expected) in table {
        let error = idx_error(images, labels);
        assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
    }
}

#[test]
fn every_truncation_of_a_gzipped_file_is_an_error() {
    let images = gzip(&idx_bytes(0x803, &[2, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 8]));
    let labels = idx_bytes(0x801, &[2], &[0, 1]);
    for length in 0..images.len() {
        assert_ne!(idx_error(&images[..length], &labels), "", "length {length}");
    }
    assert_eq!(idx_error(&images, &labels), "");
}

/// Files that go on stand for those that gzip unpacks to more than memory holds.
#[test]
fn no_more_is_read_than_the_header_announces() {
    let images = idx_bytes(0x803, &[2, 2, 2], &[0; 8]);
    let endless = std::io::Cursor::new(images).chain(std::io::repeat(7));
    let error = read_idx::<3>(Path::new("images"), endless).unwrap_err().to_string();
    assert_eq!(error, "images: its header announces 8 elements, but it holds more");
    let folder = tempfile::tempdir().unwrap();
    let batch = folder.path().join("test_batch.bin");
    fs::File::create(&batch).unwrap().set_len(3073 << 20).unwrap();
    let error = ImageRecords::open(folder.path(), Phase::Test).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("{}: is not a file of up to 60000 CIFAR-10 records of 3073 bytes", batch.display())
    );
}

#[test]
#[cfg(unix)]
fn no_file_is_read_twice() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("train-images");
    fs::write(folder.path().join("train-labels"), idx_bytes(0x801, &[2], &[4, 0])).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&images).status().unwrap();
    assert!(made.success());
    let writer =
        std::thread::spawn(move || fs::write(images, idx_bytes(0x803, &[2, 1, 1], &[5, 6])).unwrap());
    let (done, opened) = std::sync::mpsc::channel();
    let source = folder.path().to_owned();
    std::thread::spawn(move || {
        done.send(ImageRecords::open(&source, Phase::Train).map(|set| set.facts().len))
    });
    let len = opened.recv_timeout(std::time::Duration::from_secs(10)).expect("a pipe has its bytes once");
    assert_eq!(len.unwrap(), 2);
    writer.join().unwrap();
}

#[test]
fn labels_beyond_the_classes_of_the_net_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train-images"), idx_bytes(0x803, &[3, 1, 1], &[0; 3])).unwrap();
    fs::write(folder.path().join("train-labels"), idx_bytes(0x801, &[3], &[1, 9, 7])).unwrap();
    let set = ImageRecords::open(folder.path(), Phase::Train).unwrap();
    set.check_labels(10, None).unwrap();
    set.check_labels(9, Some(9)).unwrap();
    let error = set.check_labels(9, Some(255)).unwrap_err().to_string();
    assert!(
        error.ends_with("train-labels (sample 1): label 9 is out of range, the classes are 0 to 8"),
        "{error}"
    );
}

fn cifar_records(labels: &[u8]) -> Vec<u8> {
    let record =
        |&label: &u8| std::iter::once(label).chain((0..3072).map(move |pixel| (pixel / 16) as u8 ^ label));
    labels.iter().flat_map(record).collect()
}

fn write_cifar(folder: &Path) {
    for batch in 1..=5_u8 {
        let records = cifar_records(&[batch, batch + 1]);
        fs::write(folder.join(format!("data_batch_{batch}.bin")), records).unwrap();
    }
    fs::write(folder.join("test_batch.bin"), cifar_records(&[9, 0, 3])).unwrap();
}

#[test]
fn cifar_folders_are_read() {
    let folder = tempfile::tempdir().unwrap();
    write_cifar(folder.path());
    let train = ImageRecords::open(folder.path(), Phase::Train).unwrap();
    assert_eq!((train.facts().len, train.facts().shape, train.facts().classes), (10, [3, 32, 32], 10));
    let labels: Vec<u32> = (0..10).map(|index| train.label(index)).collect();
    assert_eq!(labels, [1, 2, 2, 3, 3, 4, 4, 5, 5, 6]);
    assert!(train.place(3).ends_with("(sample 3)"), "{}", train.place(3));
    let test = ImageRecords::open(folder.path(), Phase::Test).unwrap();
    let sample = read(&test, 2).unwrap();
    assert_eq!((test.label(2), sample.shape), (3, [3, 32, 32]));
    let record = cifar_records(&[3]);
    let interleaved: Vec<u8> =
        (0..1024).flat_map(|at| [0, 1024, 2048].map(|plane| record[1 + plane + at])).collect();
    assert_eq!(sample.pixels, interleaved);
}

#[test]
fn damaged_cifar_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_cifar(folder.path());
    let error = || ImageRecords::open(folder.path(), Phase::Train).unwrap_err().to_string();
    let third = folder.path().join("data_batch_3.bin");
    for (bytes, expected) in [
        (cifar_records(&[1])[..3072].to_vec(), "data_batch_3.bin: is not a file of up to 60000 CIFAR-10"),
        (Vec::new(), "data_batch_3.bin: is not a file of up to 60000 CIFAR-10 records"),
        (
            cifar_records(&[1, 10]),
            "data_batch_3.bin (record 1): label 10 is out of range, the classes are 0 to 9",
        ),
    ] {
        fs::write(&third, bytes).unwrap();
        assert!(error().contains(expected), "{}", error());
    }
    fs::remove_file(&third).unwrap();
    assert!(error().ends_with("CIFAR-10's data_batch_* (5, of which 4 are there)"), "{}", error());
}

#[test]
fn other_sources_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let error =
        |name: &str| ImageRecords::open(&folder.path().join(name), Phase::Train).err().unwrap().to_string();
    assert!(error("missing").contains("cannot read"), "{}", error("missing"));
    fs::write(folder.path().join("text"), "hello").unwrap();
    assert!(error("text").contains("cannot read"), "{}", error("text"));
    for (database, file) in [("LMDB", "data.mdb"), ("LevelDB", "CURRENT")] {
        let path = folder.path().join(database);
        fs::create_dir(&path).unwrap();
        fs::write(path.join(file), "").unwrap();
        assert!(error(database).contains(&format!("is a database of {database}")), "{}", error(database));
    }
    fs::create_dir(folder.path().join("empty")).unwrap();
    assert!(error("empty").contains("nor CIFAR-10's data_batch_*"), "{}", error("empty"));
}

#[test]
fn a_stand_in_has_the_shape_of_what_it_stands_for() {
    let set = StandIn(DatasetFacts { len: 100, shape: [3, 5, 7], classes: 4, ..DatasetFacts::default() });
    let sample = read(&set, 17).unwrap();
    assert_eq!((sample.shape, sample.pixels.len()), ([3, 5, 7], 105));
    set.check_labels(4, None).unwrap();
}

/// Where a header suffices nothing else is looked at: what is cut off behind it, or labels that are not there.
#[test]
fn the_shape_of_a_source_is_known_by_its_header() {
    let shape = |name: &str, bytes: &[u8]| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(name), bytes).unwrap();
        ImageRecords::shape_of(folder.path(), Phase::Test).map_err(|error| error.to_string())
    };
    assert_eq!(ImageRecords::shape_of(&digits(), Phase::Test).unwrap(), [1, 8, 8]);
    let head = &idx_bytes(0x803, &[9, 5, 7], &[0; 9 * 5 * 7])[..16];
    assert_eq!(shape("t10k-images", head), Ok([1, 5, 7]));
    assert_eq!(shape("t10k-images", &gzip(head)), Ok([1, 5, 7]));
    assert_eq!(shape("test_batch.bin", b""), Ok([3, 32, 32]));
    for bad in [&idx_bytes(0x803, &[1, u32::MAX, 1], &[]), &head[..9], b"hello"] {
        assert!(shape("t10k-images", bad).unwrap_err().contains("t10k-images"), "{bad:?}");
    }
    assert!(shape("train-images", head).unwrap_err().contains("holds neither t10k-images"));
}
