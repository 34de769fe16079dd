//! From a layer's specification to the layer.

use super::combine::{Concat, Eltwise, Slice, Split};
use super::elementwise::{DropoutLayer, Elementwise, PRelu};
use super::norm::{BatchNorm, LrnLayer, Scale};
use super::softmax::{Accuracy, Objective, Softmax, SoftmaxWithLoss};
use super::source::{DataLayer, FilledData};
use super::{
    BuildOptions, Convert, Layer, Place, convolution::ConvolutionLayer, inner_product::InnerProductLayer,
    pooling::Pooling, shape::Reshape,
};
use crate::error::{BoxError, NetError};
use crate::spec::{Filler, LayerKind, LayerSpec, NetSpec, layer_types};
use cudnn_layers::activation::Activation;

/// A layer, by what its net does with it besides its passes.
pub enum Role {
    /// Nothing.
    Plain(Box<dyn Layer>),
    /// Plans its kernels.
    Convolution(Box<ConvolutionLayer>),
    /// Keeps its position in a data set.
    Data(Box<DataLayer>),
}

impl Role {
    /// The layer itself.
    pub fn layer(&mut self) -> &mut dyn Layer {
        match self {
            Self::Plain(layer) => &mut **layer,
            Self::Convolution(layer) => &mut **layer,
            Self::Data(layer) => &mut **layer,
        }
    }

    /// The layer as one whose kernels are planned.
    pub fn convolution(&mut self) -> Option<&mut ConvolutionLayer> {
        if let Self::Convolution(layer) = self { Some(layer) } else { None }
    }

    /// The layer as one that reads a data set.
    pub fn data(&self) -> Option<&DataLayer> {
        if let Self::Data(layer) = self { Some(layer) } else { None }
    }
}

macro_rules! make_layers {
    ($place:ident; $(
        $name:ident $(($params:ident: $type:ty))?, $bottoms:expr, $tops:expr => $role:ident($layer:expr); $doc:literal
    )*) => {
        /// The layer that its kind's row in [`layer_types`] makes.
        fn make($place: &Place<'_>) -> Result<Role, BoxError> {
            Ok(match &$place.layer.kind {
                $(LayerKind::$name $(($params))? => Role::$role(Box::new($layer)),)*
            })
        }
    };
}

layer_types!(make_layers);

/// The layer that `layer`, one of `net`'s, describes.
///
/// # Errors
/// Data that cannot be opened; the message names the layer and its line.
pub fn build(net: &NetSpec, layer: &LayerSpec, options: &BuildOptions) -> Result<Role, NetError> {
    make(&Place { net, layer, options }).map_err(|error| NetError::layer(layer, error))
}
