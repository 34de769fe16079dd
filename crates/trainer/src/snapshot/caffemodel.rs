//! Weights that Caffe has trained: a `NetParameter` in protobuf's binary form (`….caffemodel`).

use super::Tensors;
use crate::protobuf::{Value, blob, fields};
use std::path::Path;
use tensor::geometry::elements;

/// The fields of a net's layers, and of a layer's name and blobs, in today's notation and in that of 2014.
const LAYERS: [(u64, u64, u64); 2] = [(100, 1, 7), (2, 4, 6)];

/// What the bytes are if not that.
const OTHER: &str = "it is neither a safetensors file nor a complete caffemodel";

/// The blobs of all layers, named as our own are: `conv1.0`.
pub(super) fn parse(path: &Path, message: &[u8]) -> Result<Tensors, String> {
    let (mut tensors, mut layers) = (Tensors::foreign(path), 0);
    for field in fields(message) {
        let (number, value) = field.ok_or(OTHER)?;
        let notation = LAYERS.iter().find(|(layer, ..)| *layer == number);
        if let (Some(&(_, name, blobs)), Value::Bytes(layer)) = (notation, value) {
            add_layer(&mut tensors, layer, [name, blobs])?;
            layers += 1;
        }
    }
    match layers {
        0 => Err(OTHER.to_owned()),
        _ => Ok(tensors),
    }
}

fn add_layer(tensors: &mut Tensors, layer: &[u8], [name, blobs]: [u64; 2]) -> Result<(), String> {
    let (mut layer_name, mut found) = (String::new(), Vec::new());
    for field in fields(layer) {
        match field.ok_or(OTHER)? {
            (number, Value::Bytes(text)) if number == name => {
                layer_name = String::from_utf8_lossy(text).into_owned();
            }
            (number, Value::Bytes(message)) if number == blobs => found.push(message),
            _ => {}
        }
    }
    for (index, message) in found.into_iter().enumerate() {
        let of_layer = format!("blob {index} of layer '{layer_name}'");
        let (shape, values) = blob(message).ok_or_else(|| format!("{of_layer} is damaged"))?;
        let count = values.len();
        if elements(&shape) != Some(count) {
            return Err(format!("{of_layer} has {count} values for the shape {shape:?}"));
        }
        tensors.add(format!("{layer_name}.{index}"), shape, &values);
    }
    Ok(())
}
