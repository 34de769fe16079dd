//! Mean images in Caffe's binary form.

use crate::data::{Phase, Transform, read_mean};
use crate::spec::{Mean, TransformParams};
use std::fs;

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn message(field: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![field << 3 | 2];
    varint(body.len() as u64, &mut out);
    out.extend_from_slice(body);
    out
}

fn packed(values: &[f32]) -> Vec<u8> {
    message(5, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
}

/// The old form, with four dimensions in fields 1 to 4.
fn old_form(dims: [u64; 4], values: &[f32]) -> Vec<u8> {
    let mut out = Vec::new();
    for (field, dim) in (1..).zip(dims) {
        out.push(field << 3);
        varint(dim, &mut out);
    }
    out.extend(packed(values));
    out
}

#[test]
fn both_forms_of_a_blob_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mean.binaryproto");
    let values: Vec<f32> = (0..200).map(|value| value as f32 / 3.0).collect();
    let unpacked: Vec<u8> =
        values.iter().flat_map(|v| [vec![5 << 3 | 5], v.to_le_bytes().to_vec()].concat()).collect();
    let shape = message(7, &message(1, &[1, 2, 10, 10]));
    for bytes in [
        old_form([1, 2, 10, 10], &values),
        [shape.clone(), packed(&values)].concat(),
        [unpacked, message(9, b"skipped"), shape].concat(),
    ] {
        fs::write(&path, bytes).unwrap();
        assert_eq!(read_mean(&path).unwrap(), ([2, 10, 10], values.clone()));
    }
}

#[test]
fn every_truncation_and_other_shapes_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mean.binaryproto");
    let error = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        read_mean(&path).err().map_or_else(String::new, |error| error.to_string())
    };
    let whole = old_form([1, 1, 2, 3], &[1.0; 6]);
    assert_eq!(error(&whole), "");
    for length in 0..whole.len() {
        assert!(error(&whole[..length]).contains("mean.binaryproto: is not a mean image"), "length {length}");
    }
    assert!(error(&old_form([2, 1, 1, 3], &[1.0; 6])).contains("its shape is [2, 1, 1, 3]"));
    assert!(error(&old_form([1, u64::MAX, u64::MAX, 3], &[1.0; 6])).contains("holds 6 values"));
    assert!(error(&[0xff; 30]).contains("does not read as a protobuf message"));
}

#[test]
fn the_mean_image_must_be_as_large_as_the_images() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mean.binaryproto");
    fs::write(&path, old_form([1, 1, 2, 3], &[1.0; 6])).unwrap();
    let options = TransformParams { mean: Mean::File(path), ..TransformParams::default() };
    Transform::new(&options, [1, 2, 3], Phase::Test).unwrap();
    let error = Transform::new(&options, [1, 3, 3], Phase::Test).err().unwrap().to_string();
    assert_eq!(error, "the image is 1x3x3 but the mean image is 1x2x3");
    // Its pixels are those of images that are neither turned nor coloured.
    let turned = TransformParams { rotation: 10.0, ..options };
    Transform::new(&turned, [1, 2, 3], Phase::Test).unwrap();
    let error = Transform::new(&turned, [1, 2, 3], Phase::Train).err().unwrap().to_string();
    assert!(error.contains("rotation") && error.contains("mean_value does"), "{error}");
}
