//! Protobuf's binary form, as far as the files of Caffe, ONNX and TensorBoard need it: fields by number, and no schema.

/// A number, or bytes, which may be those of a single float.
pub(crate) enum Value<'a> {
    /// A number of variable length.
    Varint(u64),
    /// A message, a string, a packed list, or the four bytes of a float.
    Bytes(&'a [u8]),
}

/// The fields of a message by protobuf's wire types, with their numbers; `None` for what is malformed, as below.
pub(crate) fn fields(mut message: &[u8]) -> impl Iterator<Item = Option<(u64, Value<'_>)>> {
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

/// Shape and data of Caffe's `BlobProto`: its fields 1 to 4 are num, channels, height, width (the old form), 7 is shape
/// { 1 dim }, 5 data, 8 data in double precision; of NVIDIA's branch 10 is the type of what is in 12. Whether shape and
/// data fit together is not looked at.
pub(crate) fn blob(message: &[u8]) -> Option<(Vec<usize>, Vec<f32>)> {
    let (mut shape, mut values, mut raw_type) = (Vec::new(), Vec::new(), 0);
    for field in fields(message) {
        match field? {
            (number @ 1..=4, Value::Varint(dim)) => {
                shape.resize(4, 0);
                shape[number as usize - 1] = usize::try_from(dim).ok()?;
            }
            (7, Value::Bytes(message)) => shape = dims(message)?,
            (10, Value::Varint(number)) => raw_type = number,
            (number @ (5 | 8 | 12), Value::Bytes(packed)) => values.extend(match (number, raw_type) {
                (5, _) | (12, 1) => numbers(packed, f32::from_le_bytes)?,
                (8, _) | (12, 0) => numbers(packed, |double| f64::from_le_bytes(double) as f32)?,
                (_, 2) => numbers(packed, |half| half::f16::from_le_bytes(half).to_f32())?,
                _ => return None,
            }),
            _ => {}
        }
    }
    Some((shape, values))
}

fn numbers<const N: usize>(packed: &[u8], number: fn([u8; N]) -> f32) -> Option<Vec<f32>> {
    let (numbers, rest) = packed.as_chunks();
    rest.is_empty().then(|| numbers.iter().map(|&bytes| number(bytes)).collect())
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

/// The bytes of a message under way.
#[derive(Clone, Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Adds a number. A negative one takes ten bytes, as protobuf's `int64` does.
    pub fn number(mut self, field: u64, value: i64) -> Self {
        self.varint(field << 3);
        self.varint(value.cast_unsigned());
        self
    }

    /// Adds a float.
    pub fn float(mut self, field: u64, value: f32) -> Self {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a double.
    pub fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a string, bytes, or a message that is complete.
    pub fn bytes(mut self, field: u64, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a message for each of `items`.
    pub fn each(self, field: u64, items: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        items.into_iter().fold(self, |message, item| message.bytes(field, item))
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

impl AsRef<[u8]> for Writer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
