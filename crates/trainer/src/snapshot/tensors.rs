//! Named `f32` tensors in one safetensors file.
//!
//! The format: the length of the header as a little-endian `u64`, the header (JSON: per tensor its type, shape and
//! place in the data, and a map of strings `__metadata__`), then the data, little-endian. Files written here carry a
//! CRC-32 of the data in the metadata, which the format itself has no place for, and one of all else in the header;
//! files from elsewhere load without.

use super::{NamedTensor, NetError, Result};
use files::{read_regular, write_atomically};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use tensor::geometry::elements;

// The format is little-endian, and elements are written as they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"));

/// Keys of the checksums in the metadata: of the data, and of the header without the second.
const CHECKSUM: &str = "crc32";
const HEADER_CHECKSUM: &str = "crc32_header";
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
) -> Result<u32> {
    check(tensors)?;
    let checksum = crc32(tensors.iter().map(|(_, _, data)| bytemuck::cast_slice(data)));
    let header = header(tensors, metadata, checksum);
    let written = write_atomically(path, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        tensors.iter().try_for_each(|(_, _, data)| file.write_all(bytemuck::cast_slice(data)))
    });
    written.map(|()| checksum).map_err(NetError::file("cannot write", path))
}

pub(super) fn check(tensors: &[NamedTensor]) -> Result<()> {
    let mut names = BTreeSet::from([METADATA]);
    for (name, shape, data) in tensors {
        let error = |reason| NetError::Refused(format!("tensor {name} cannot be used: {reason}"));
        if !names.insert(name.as_str()) {
            return Err(error("the name is given twice or reserved".to_owned()));
        }
        if elements(shape) != Some(data.len()) {
            return Err(error(format!("{} elements do not make the shape {shape:?}", data.len())));
        }
    }
    Ok(())
}

fn header(tensors: &[NamedTensor], metadata: &BTreeMap<String, String>, checksum: u32) -> Vec<u8> {
    let mut metadata = metadata.clone();
    metadata.insert(CHECKSUM.to_owned(), format!("{checksum:08x}"));
    let mut header = json!({ METADATA: metadata });
    let mut start = 0;
    for (name, shape, data) in tensors {
        let end = start + size_of_val(&**data);
        header[name] = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] });
        start = end;
    }
    header[METADATA][HEADER_CHECKSUM] = of_header(&header).into();
    let mut header = header.to_string().into_bytes();
    // The data begin at a multiple of 8 bytes, for readers that map the file.
    header.resize(header.len().next_multiple_of(LENGTH_BYTES), b' ');
    header
}

fn crc32<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut crc = flate2::Crc::new();
    pieces.into_iter().for_each(|piece| crc.update(piece));
    crc.sum()
}

/// The text of equal headers is equal: keys are in order.
fn of_header(header: &Value) -> String {
    format!("{:08x}", crc32([header.to_string().as_bytes()]))
}

/// The tensors of a file, in memory.
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    path: PathBuf,
    data: Vec<u8>,
    /// Shape and place in `data` of every tensor.
    index: BTreeMap<String, (Vec<usize>, Range<usize>)>,
    metadata: HashMap<String, String>,
    checksum: u32,
}

/// Reads a whole safetensors file of `f32` tensors. Those of half precision become such, and single 64-bit integers,
/// which count batches in PyTorch's files, are left out.
///
/// # Errors
/// The file cannot be read, is truncated, damaged (its checksum differs) or something else, or holds another type.
pub fn load_tensors(path: &Path) -> Result<Tensors> {
    let bytes = read_regular(path).map_err(NetError::read(path))?;
    parse(path, bytes).map_err(|reason| NetError::corrupt(path, reason))
}

/// Whether a file of this content is a safetensors file, or the beginning of one.
pub(super) fn is_safetensors(data: &[u8]) -> bool {
    data.get(LENGTH_BYTES).is_none_or(|&byte| byte == b'{')
}

pub(super) fn parse(path: &Path, mut data: Vec<u8>) -> Result<Tensors, String> {
    if !is_safetensors(&data) {
        return Err("it is not a safetensors file".to_owned());
    }
    let (header_len, header) = SafeTensors::read_metadata(&data)
        .map_err(|error| format!("it is cut short or its header is damaged ({error})"))?;
    let metadata = header.metadata().clone().unwrap_or_default();
    if let Some(expected) = metadata.get(HEADER_CHECKSUM) {
        let text = &data[LENGTH_BYTES..LENGTH_BYTES + header_len];
        let mut header: Value = serde_json::from_slice(text).unwrap_or_default();
        header[METADATA].as_object_mut().and_then(|metadata| metadata.remove(HEADER_CHECKSUM));
        if *expected != of_header(&header) {
            return Err("its checksum is wrong, the header is damaged".to_owned());
        }
    }
    data.drain(..LENGTH_BYTES + header_len);
    let checksum = crc32([&data[..]]);
    if metadata.get(CHECKSUM).is_some_and(|expected| *expected != format!("{checksum:08x}")) {
        return Err("its checksum is wrong, the data are damaged".to_owned());
    }
    let mut tensors = Tensors { path: path.to_owned(), data, index: BTreeMap::new(), metadata, checksum };
    for (name, info) in header.tensors() {
        let (shape, range) = (info.shape.clone(), info.data_offsets.0..info.data_offsets.1);
        let widen = match info.dtype {
            Dtype::F32 => {
                tensors.index.insert(name, (shape, range));
                continue;
            }
            Dtype::I64 if shape.is_empty() => continue,
            Dtype::F16 => |bits| f16::from_bits(bits).to_f32(),
            Dtype::BF16 => |bits| bf16::from_bits(bits).to_f32(),
            other => {
                return Err(format!("tensor {name} is of type {other}; F32, F16 and BF16 are supported"));
            }
        };
        let (halves, _) = tensors.data[range].as_chunks();
        let values: Vec<f32> = halves.iter().map(|&half| widen(u16::from_le_bytes(half))).collect();
        tensors.add(name, shape, &values);
    }
    // What PyTorch's DistributedDataParallel and its compiler put before all names.
    for wrapper in ["module.", "_orig_mod.", "module."] {
        let is_wrapped = |name: &String| name.starts_with(wrapper);
        if !tensors.metadata.contains_key(CHECKSUM) && tensors.index.keys().all(is_wrapped) {
            let index = std::mem::take(&mut tensors.index).into_iter();
            tensors.index = index.map(|(name, found)| (name[wrapper.len()..].to_owned(), found)).collect();
        }
    }
    Ok(tensors)
}

impl Tensors {
    /// Of the file at `path`, which is none of safetensors.
    pub(super) fn foreign(path: &Path) -> Self {
        Self { path: path.to_owned(), ..Self::default() }
    }

    /// Adds a tensor, or replaces the one of this name.
    pub(super) fn add(&mut self, name: String, shape: Vec<usize>, values: &[f32]) {
        let start = self.data.len();
        self.data.extend_from_slice(bytemuck::cast_slice(values));
        self.index.insert(name, (shape, start..self.data.len()));
    }

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

    /// What the metadata hold under `key` in JSON, if anything. Errors begin with `subject`, such as `its plans are`.
    ///
    /// # Errors
    /// [`NetError::Refused`] for what cannot be read or does not pass `check`.
    pub(crate) fn json<T: DeserializeOwned>(
        &self,
        key: &str,
        subject: &str,
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> Result<Option<T>> {
        let Some(json) = self.metadata(key) else { return Ok(None) };
        let value = serde_json::from_str(json).map_err(|error| error.to_string());
        let checked = value.and_then(|value| check(&value).map(|()| Some(value)));
        checked.map_err(|reason| NetError::corrupt(&self.path, format!("{subject} damaged ({reason})")))
    }

    /// CRC-32 of the data.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Verifies that the file holds exactly the tensors `expected`, before any of them is copied.
    ///
    /// # Errors
    /// [`NetError::Refused`], naming the first that differs.
    pub fn check<'a>(
        &self,
        expected: impl IntoIterator<Item = (&'a str, impl AsRef<[usize]>)>,
    ) -> Result<()> {
        let mut known = BTreeSet::new();
        for (name, shape) in expected {
            self.bytes(name, shape.as_ref())?;
            known.insert(name);
        }
        let other = self.index.iter().find(|(name, _)| !known.contains(name.as_str()));
        let Some((name, (shape, _))) = other else { return Ok(()) };
        Err(self.other_net(format!("it has a tensor {name} of shape {shape:?}, which this net has not")))
    }

    /// The elements of a tensor, little-endian. Files of Caffe have ones before a shape of fewer axes.
    ///
    /// # Errors
    /// [`NetError::Refused`] if it is not there, or has another shape.
    pub fn bytes(&self, name: &str, expected: &[usize]) -> Result<&[u8]> {
        let difference = match self.index.get(name) {
            Some((shape, range)) if behind_ones(shape) == behind_ones(expected) => {
                return Ok(&self.data[range.clone()]);
            }
            Some((shape, _)) => format!("{name} has the shape {shape:?} in it, but {expected:?} in this net"),
            None => format!("it has no tensor {name}, which this net has with the shape {expected:?}"),
        };
        Err(self.other_net(difference))
    }

    pub(super) fn other_net(&self, difference: String) -> NetError {
        NetError::refused(&self.path, format!("is of another net: {difference}"))
    }
}

fn behind_ones(shape: &[usize]) -> &[usize] {
    &shape[shape.iter().take_while(|&&dim| dim == 1).count()..]
}
