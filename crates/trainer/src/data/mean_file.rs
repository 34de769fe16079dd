//! Caffe's mean image: a `BlobProto` message in protobuf's binary form (`…_mean.binaryproto`).

use super::{NetError, Result};
use crate::protobuf::blob;
use files::read_regular;
use std::path::Path;

/// Reads the mean image in a `.binaryproto` file: its channels, height and width, and its values in this order.
///
/// # Errors
/// The file cannot be read, is not a `BlobProto`, or does not hold exactly one image.
pub fn read_mean(path: &Path) -> Result<([usize; 3], Vec<f32>)> {
    let bytes = read_regular(path).map_err(NetError::read(path))?;
    let error = |reason| NetError::at(path.display(), format!("is not a mean image of Caffe: {reason}"));
    let (shape, values) =
        blob(&bytes).ok_or_else(|| error("it does not read as a protobuf message".to_owned()))?;
    let count = shape.iter().try_fold(1_usize, |count, &extent| count.checked_mul(extent));
    match shape[..] {
        [1, channels, height, width] if !values.is_empty() && count == Some(values.len()) => {
            Ok(([channels, height, width], values))
        }
        _ => Err(error(format!("its shape is {shape:?} and it holds {} values", values.len()))),
    }
}
