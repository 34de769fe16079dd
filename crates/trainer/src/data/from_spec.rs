//! From what a net file says about its data to the options of this module.

use std::path::PathBuf;

use super::{ImageOptions, TransformOptions};
use crate::spec::{ImageDataParams, Mean, TransformParams};

impl TransformOptions {
    /// The options of a layer's `transform_param`. `resolve` finds a file that the net names
    /// ([`NetSpec::resolve`](crate::spec::NetSpec::resolve)).
    pub fn from_spec(params: &TransformParams, resolve: impl Fn(&str) -> PathBuf) -> Self {
        let (mean_values, mean_file) = match &params.mean {
            Mean::Zero => (Vec::new(), None),
            Mean::Values(values) => (values.clone(), None),
            Mean::File(file) => (Vec::new(), Some(resolve(file))),
        };
        Self {
            scale: params.scale,
            mirror: params.mirror,
            crop_size: params.crop_size,
            mean_values,
            mean_file,
            resize: params.resize.map(|side| [side, side]),
        }
    }
}

impl ImageOptions {
    /// The options of an `ImageData` layer. `resolve` finds a folder that the net names.
    pub fn from_spec(params: &ImageDataParams, resolve: impl Fn(&str) -> PathBuf) -> Self {
        let root = params.root_folder.as_str();
        let (new_height, new_width) = params.new_size.map_or((0, 0), |size| (size.h, size.w));
        Self {
            // No folder means the current one, as in Caffe, and not the folder of the net.
            root_folder: if root.is_empty() { PathBuf::new() } else { resolve(root) },
            new_height,
            new_width,
            is_color: params.is_color,
        }
    }
}
