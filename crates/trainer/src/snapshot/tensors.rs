//! Named `f32` tensors in one safetensors file.
//!
//! The format: the length of the header as a little-endian `u64`, the header (JSON: per tensor its type, shape and place
//! in the data, and a map of strings `__metadata__`), then the data, little-endian. Files written here carry a CRC-32 of the
//! data in the metadata, which the format itself has no place for; files from elsewhere load without one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde_json::{Value, json};

use super::{NamedTensor, SnapshotError};
use crate::files::{read_regular, write_atomically};

/// Key of the checksum in the metadata.
const CHECKSUM: &str = "crc32";
/// Name that the format keeps for itself.
const METADATA: &str = "__metadata__";
const LENGTH_BYTES: usize = 8;

/// Writes tensors, in the order given, and `metadata` to a safetensors file; returns the checksum of the data.
///
/// # Errors
/// A name is given twice or reserved, a shape does not match its elements, or the file cannot be written; then a file
/// that stood at `path` before is untouched.
pub fn save_tensors(
    path: &Path,
    tensors: &[NamedTensor],
    metadata: &BTreeMap<String, String>,
) -> Result<u32, SnapshotError> {
    check(tensors)?;
    let checksum = checksum(tensors);
    write_atomically(path, |file| write_file(file, tensors, metadata, checksum))
        .map_err(|source| SnapshotError::Write { path: path.to_owned(), source })?;
    Ok(checksum)
}

fn check(tensors: &[NamedTensor]) -> Result<(), SnapshotError> {
    let mut names = BTreeSet::from([METADATA]);
    for &(name, shape, data) in tensors {
        let error = |reason: String| SnapshotError::Tensor { name: name.to_owned(), reason };
        if !names.insert(name) {
            return Err(error("the name is given twice or reserved".to_owned()));
        }
        if shape.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim)) != Some(data.len()) {
            return Err(error(format!("{} elements do not make the shape {shape:?}", data.len())));
        }
    }
    Ok(())
}

fn write_file(
    file: &mut dyn Write,
    tensors: &[NamedTensor],
    metadata: &BTreeMap<String, String>,
    checksum: u32,
) -> io::Result<()> {
    let mut header = header(tensors, metadata, checksum);
    // The data begin at a multiple of 8 bytes, for readers that map the file.
    header.resize(header.len().next_multiple_of(LENGTH_BYTES), b' ');
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    for &(_, _, data) in tensors {
        for_chunks(data, |bytes| file.write_all(bytes))?;
    }
    Ok(())
}

fn header(tensors: &[NamedTensor], metadata: &BTreeMap<String, String>, checksum: u32) -> Vec<u8> {
    let mut metadata = metadata.clone();
    metadata.insert(CHECKSUM.to_owned(), format!("{checksum:08x}"));
    let mut header = serde_json::Map::from_iter([(METADATA.to_owned(), json!(metadata))]);
    let mut start = 0;
    for &(name, shape, data) in tensors {
        let end = start + size_of_val(data);
        header
            .insert(name.to_owned(), json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] }));
        start = end;
    }
    Value::Object(header).to_string().into_bytes()
}

fn checksum(tensors: &[NamedTensor]) -> u32 {
    let mut crc = flate2::Crc::new();
    for &(_, _, data) in tensors {
        let updated: io::Result<()> = for_chunks(data, |bytes| {
            crc.update(bytes);
            Ok(())
        });
        updated.expect("a checksum does no input or output");
    }
    crc.sum()
}

/// Hands out the little-endian bytes of `data` in pieces, so that a net is never in memory twice.
fn for_chunks(data: &[f32], mut act: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut bytes = [0; 4096];
    for piece in data.chunks(bytes.len() / 4) {
        for (bytes, value) in bytes.chunks_exact_mut(4).zip(piece) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        act(&bytes[..4 * piece.len()])?;
    }
    Ok(())
}

/// The tensors of a file, in memory.
#[derive(Clone, Debug)]
pub struct Tensors {
    path: PathBuf,
    data: Vec<u8>,
    /// Shape and place in `data` of every tensor.
    index: BTreeMap<String, (Vec<usize>, Range<usize>)>,
    metadata: HashMap<String, String>,
    checksum: u32,
}

/// Reads a whole safetensors file of `f32` tensors.
///
/// # Errors
/// The file cannot be read, is truncated, damaged (its checksum differs) or something else, or holds another type.
pub fn load_tensors(path: &Path) -> Result<Tensors, SnapshotError> {
    let bytes = read_regular(path).map_err(|source| SnapshotError::Read { path: path.to_owned(), source })?;
    parse(path, bytes).map_err(|reason| SnapshotError::Corrupt { path: path.to_owned(), reason })
}

fn parse(path: &Path, mut data: Vec<u8>) -> Result<Tensors, String> {
    let header = header_of(&data)?;
    let parsed: Metadata =
        serde_json::from_slice(header).map_err(|error| format!("its header is damaged ({error})"))?;
    let (start, found) = (LENGTH_BYTES + header.len(), data.len() - LENGTH_BYTES - header.len());
    if parsed.data_len() != found {
        return Err(format!(
            "its header announces {} bytes of data, but {found} are there",
            parsed.data_len()
        ));
    }
    let index = parsed.tensors().into_iter().map(|(name, info)| match info.dtype {
        Dtype::F32 => Ok((name, (info.shape.clone(), info.data_offsets.0..info.data_offsets.1))),
        other => Err(format!("tensor {name} is of type {other}, only F32 is supported")),
    });
    let index = index.collect::<Result<_, _>>()?;
    let metadata = parsed.metadata().clone().unwrap_or_default();
    data.drain(..start);
    let mut crc = flate2::Crc::new();
    crc.update(&data);
    let checksum = crc.sum();
    if metadata.get(CHECKSUM).is_some_and(|expected| *expected != format!("{checksum:08x}")) {
        return Err("its checksum is wrong, the data are damaged".to_owned());
    }
    Ok(Tensors { path: path.to_owned(), data, index, metadata, checksum })
}

fn header_of(bytes: &[u8]) -> Result<&[u8], String> {
    let (length, rest) = bytes
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or_else(|| format!("it is only {} bytes long", bytes.len()))?;
    if rest.first().is_some_and(|&byte| byte != b'{') {
        return Err("it is not a safetensors file".to_owned());
    }
    let length = u64::from_le_bytes(*length);
    let header = usize::try_from(length).ok().and_then(|length| rest.get(..length));
    header.ok_or_else(|| format!("its header announces {length} bytes, but only {} follow", rest.len()))
}

impl Tensors {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names and shapes, by name.
    pub fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.index.iter().map(|(name, (shape, _))| (name.as_str(), shape.as_slice()))
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.index.get(name).map(|(shape, _)| shape.as_slice())
    }

    /// A string of the file's metadata.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// CRC-32 of the data.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Verifies that the file holds exactly the tensors `expected`, before any of them is copied.
    ///
    /// # Errors
    /// [`SnapshotError::Missing`], [`SnapshotError::Shape`] or [`SnapshotError::Unknown`], naming the first that differs.
    pub fn check<'a>(
        &self,
        expected: impl IntoIterator<Item = (&'a str, &'a [usize])>,
    ) -> Result<(), SnapshotError> {
        let mut known = BTreeSet::new();
        for (name, shape) in expected {
            self.range(name, shape)?;
            known.insert(name);
        }
        match self.shapes().find(|(name, _)| !known.contains(name)) {
            None => Ok(()),
            Some((name, shape)) => Err(SnapshotError::Unknown {
                path: self.path.clone(),
                name: name.to_owned(),
                shape: shape.to_vec(),
            }),
        }
    }

    /// Copies a tensor out, bit by bit.
    ///
    /// # Errors
    /// [`SnapshotError::Missing`] or [`SnapshotError::Shape`].
    ///
    /// # Panics
    /// If `out` is not as long as `shape` says.
    pub fn copy_to(&self, name: &str, shape: &[usize], out: &mut [f32]) -> Result<(), SnapshotError> {
        let bytes = &self.data[self.range(name, shape)?];
        let (floats, _) = bytes.as_chunks::<4>();
        assert_eq!(floats.len(), out.len(), "elements of tensor {name}");
        for (out, &float) in out.iter_mut().zip(floats) {
            *out = f32::from_le_bytes(float);
        }
        Ok(())
    }

    fn range(&self, name: &str, expected: &[usize]) -> Result<Range<usize>, SnapshotError> {
        let path = || self.path.clone();
        match self.index.get(name) {
            None => {
                Err(SnapshotError::Missing { path: path(), name: name.to_owned(), shape: expected.to_vec() })
            }
            Some((shape, _)) if shape != expected => Err(SnapshotError::Shape {
                path: path(),
                name: name.to_owned(),
                expected: expected.to_vec(),
                found: shape.clone(),
            }),
            Some((_, range)) => Ok(range.clone()),
        }
    }
}
