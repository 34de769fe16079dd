//! Caffe's mean image: a `BlobProto` message in protobuf's binary form (`…_mean.binaryproto`).

use super::DataError;
use ndarray::Array3;
use std::{fs, path::Path};

/// Reads the mean image in a `.binaryproto` file: channel, row, column.
///
/// # Errors
/// The file cannot be read, is not a `BlobProto`, or does not hold exactly one image.
pub fn read_mean(path: &Path) -> Result<Array3<f32>, DataError> {
    let bytes = fs::read(path).map_err(DataError::read(path))?;
    let error = |reason| DataError::at(path.display(), format!("is not a mean image of Caffe: {reason}"));
    let (shape, values) =
        blob(&bytes).ok_or_else(|| error("it does not read as a protobuf message".to_owned()))?;
    let wrong = format!("its shape is {shape:?} and it holds {} values", values.len());
    match shape[..] {
        [1, channels, height, width] if !values.is_empty() => {
            Array3::from_shape_vec([channels, height, width], values).map_err(|_| error(wrong))
        }
        _ => Err(error(wrong)),
    }
}

/// Shape and data of a `BlobProto`: its fields 1 to 4 are num, channels, height, width (the old form), 7 is shape { 1 dim }, 5
/// data. As in all functions below, `None` for what is malformed.
fn blob(message: &[u8]) -> Option<(Vec<usize>, Vec<f32>)> {
    let (mut shape, mut values) = (Vec::new(), Vec::new());
    for field in fields(message) {
        match field? {
            (number @ 1..=4, Value::Varint(dim)) => {
                shape.resize(4, 0);
                shape[number as usize - 1] = usize::try_from(dim).ok()?;
            }
            (5, Value::Bytes(packed)) => {
                let (floats, rest) = packed.as_chunks();
                values.extend(floats.iter().map(|&float| f32::from_le_bytes(float)));
                rest.is_empty().then_some(())?;
            }
            (7, Value::Bytes(message)) => shape = dims(message)?,
            _ => {}
        }
    }
    Some((shape, values))
}

fn dims(message: &[u8]) -> Option<Vec<usize>> {
    let mut dims = Vec::new();
    for field in fields(message) {
        match field? {
            (1, Value::Varint(dim)) => dims.push(usize::try_from(dim).ok()?),
            (1, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    dims.push(usize::try_from(varint(&mut packed)?).ok()?);
                }
            }
            _ => {}
        }
    }
    Some(dims)
}

/// A number, or bytes, which may be those of a single float.
enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message by protobuf's wire types, with their numbers.
fn fields(mut message: &[u8]) -> impl Iterator<Item = Option<(u64, Value<'_>)>> {
    std::iter::from_fn(move || (!message.is_empty()).then(|| field(&mut message)))
}

fn field<'a>(message: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let key = varint(message)?;
    let (number, length) = match key & 7 {
        0 => return Some((key >> 3, Value::Varint(varint(message)?))),
        // A double is nothing that is looked for, whatever its number.
        1 => (0, 8),
        2 => (key >> 3, usize::try_from(varint(message)?).ok()?),
        5 => (key >> 3, 4),
        _ => return None,
    };
    Some((number, Value::Bytes(message.split_off(..length)?)))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
