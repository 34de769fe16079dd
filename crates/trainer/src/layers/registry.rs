//! From a layer's specification to the layer, and to the formats that it reads.

use super::combine::{Concat, Eltwise, Slice};
use super::elementwise::{DropoutLayer, Elementwise, PRelu};
use super::norm::{BatchNorm, LrnLayer, Scale};
use super::shape::{Copies, CopyLayer};
use super::softmax::{Accuracy, Softmax, SoftmaxWithLoss};
use super::source::{self, FilledData};
use super::{
    BuildOptions, Layer, Place, axis_of, convolution::ConvolutionLayer, inner_product::InnerProductLayer,
    pooling::Pooling,
};
use crate::error::{BoxError, NetError, Result};
use crate::spec::{Filler, LayerKind, LayerSpec, LrnParams, NetSpec, Region, layer_types};
use cudnn_layers::{activation::Activation, lrn::Lrn};
use tensor::{AxisOrder, Format, TensorType};

macro_rules! make_layers {
    ($place:ident; $(
        $name:ident $(($params:ident: $type:ty))?, $bottoms:expr, $tops:expr => $layer:expr; $doc:literal
    )*) => {
        /// The layer that its kind's row in [`layer_types`] makes.
        fn make($place: &Place<'_>) -> Result<Box<dyn Layer>, BoxError> {
            match &$place.layer.kind {
                $(LayerKind::$name $(($params))? => Ok($layer.into()),)*
                LayerKind::Unknown(reason) => Err(reason.as_str().into()),
            }
        }
    };
}

layer_types!(make_layers);

/// The layer that `layer`, one of `net`'s, describes.
///
/// # Errors
/// Data that cannot be opened, or a type that is not known; the message names the layer and its line.
pub fn build(net: &NetSpec, layer: &LayerSpec, options: &BuildOptions) -> Result<Box<dyn Layer>> {
    make(&Place { net, layer, options }).map_err(|error| NetError::layer(layer, error))
}

/// In which format a layer reads bottom number `bottom`, of this shape, in a net whose feature maps are of `format`. Where the bottom is of another, the graph puts a conversion before the layer.
pub fn reads(layer: &LayerSpec, bottom: usize, shape: &TensorType, format: Format) -> Format {
    use LayerKind::*;
    let of_files = format.in_order(AxisOrder::Nchw);
    // What reads channels side by side, or, along another axis, the order of the file.
    let along = |axis: i32| if axis_of(shape, axis) == Ok(1) { format } else { of_files };
    match &layer.kind {
        Convert | Split | Silence => shape.format(),
        // Such as labels, of which BF16 has no more than the first 256 exactly.
        _ if shape.rank() == 1 && shape.format() == Format::F32 => Format::F32,
        // Factors and labels are no feature maps.
        Scale(_) | SoftmaxWithLoss(_) | Accuracy(_) if bottom > 0 => Format::F32,
        Objective => Format::F32,
        // A second bottom may be of several axes, in the order of the file.
        Scale(params) if params.num_axes == 1 && layer.bottoms.len() == 1 => along(params.axis),
        Concat(params) => along(params.axis),
        Slice(params) => along(params.axis),
        LRN(params) if params.norm_region == Region::AcrossChannels => format,
        // The mask goes by the number of an element, and is to be the same in every format.
        Dropout(_) => of_files,
        // Scores lie as their labels do.
        Softmax(_) | SoftmaxWithLoss(_) | Accuracy(_) => of_files,
        Flatten(_) | Reshape(_) => shape.format().in_order(AxisOrder::Nchw),
        Scale(_) | LRN(_) | InnerProduct(_) => of_files,
        _ => format,
    }
}
