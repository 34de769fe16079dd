//! Caffe's mean image: a `BlobProto` message in protobuf's binary form (`…_mean.binaryproto`).

use super::{NetError, Result};
use crate::protobuf::blob;
use files::read_regular;
use ndarray::Array3;
use std::path::Path;

/// Reads the mean image in a `.binaryproto` file: channel, row, column.
///
/// # Errors
/// The file cannot be read, is not a `BlobProto`, or does not hold exactly one image.
pub fn read_mean(path: &Path) -> Result<Array3<f32>> {
    let bytes = read_regular(path).map_err(NetError::read(path))?;
    let error = |reason| NetError::at(path.display(), format!("is not a mean image of Caffe: {reason}"));
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
