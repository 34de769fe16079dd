//! Caffe's mean image: a `BlobProto` message in protobuf's binary form (`…_mean.binaryproto`).

use std::fs;
use std::path::Path;

use super::DataError;

/// A mean image, subtracted pixel by pixel before cropping.
#[derive(Clone, Debug, PartialEq)]
pub struct MeanImage {
    /// Channels, height, width.
    pub shape: [usize; 3],
    /// Means in the order channel, row, column.
    pub values: Vec<f32>,
}

impl MeanImage {
    /// Reads a `.binaryproto` file.
    ///
    /// # Errors
    /// The file cannot be read, is not a `BlobProto`, or does not hold exactly one image.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let bytes = fs::read(path).map_err(DataError::read(path))?;
        let error = |reason| DataError::format(path, format!("is not a mean image of Caffe: {reason}"));
        let blob =
            Blob::parse(&bytes).ok_or_else(|| error("it does not read as a protobuf message".to_owned()))?;
        let elements = blob.shape.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim));
        match blob.shape[..] {
            [1, channels, height, width] if elements == Some(blob.values.len()) && elements != Some(0) => {
                Ok(Self { shape: [channels, height, width], values: blob.values })
            }
            _ => {
                Err(error(format!("its shape is {:?} and it holds {} values", blob.shape, blob.values.len())))
            }
        }
    }
}

/// The fields of `BlobProto` that matter: 1-4 num, channels, height, width (the old form) or 7 shape { 1 dim }; 5 data.
#[derive(Default)]
struct Blob {
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Blob {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut blob = Self::default();
        let mut reader = Reader(bytes);
        while let Some(field) = reader.field()? {
            match field {
                (number @ 1..=4, Value::Varint(dim)) => {
                    blob.shape.resize(4, 0);
                    blob.shape[number as usize - 1] = usize::try_from(dim).ok()?;
                }
                (5, Value::Bytes(packed)) => {
                    let (floats, rest) = packed.as_chunks::<4>();
                    blob.values.extend(floats.iter().map(|&float| f32::from_le_bytes(float)));
                    rest.is_empty().then_some(())?;
                }
                (5, Value::Fixed32(float)) => blob.values.push(f32::from_le_bytes(float)),
                (7, Value::Bytes(shape)) => blob.shape = dims(shape)?,
                _ => {}
            }
        }
        Some(blob)
    }
}

fn dims(message: &[u8]) -> Option<Vec<usize>> {
    let mut dims = Vec::new();
    let mut reader = Reader(message);
    while let Some(field) = reader.field()? {
        match field {
            (1, Value::Varint(dim)) => dims.push(usize::try_from(dim).ok()?),
            (1, Value::Bytes(packed)) => {
                let mut packed = Reader(packed);
                while !packed.0.is_empty() {
                    dims.push(usize::try_from(packed.varint()?).ok()?);
                }
            }
            _ => {}
        }
    }
    Some(dims)
}

/// A value by protobuf's wire types.
enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
    Fixed64,
}

/// What is left of a message; every method returns `None` where the message is malformed.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next field and its number; an inner `None` at the end.
    fn field(&mut self) -> Option<Option<(u64, Value<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed64)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(self.take(4)?.try_into().ok()?),
            _ => return None,
        };
        Some(Some((key >> 3, value)))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}
