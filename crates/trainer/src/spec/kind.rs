//! The layer types.

use super::{
    AccuracyParams, BatchNormParams, ConcatParams, ConvolutionParams, DataParams, DropoutParams,
    DummyDataParams, EltwiseParams, FlattenParams, ImageDataParams, InnerProductParams, InputParams,
    LrnParams, PoolingParams, ReluParams, ReshapeParams, ScaleParams, SoftmaxParams, SoftmaxWithLossParams,
};
use crate::prototxt::{Error, Reader};
use std::ops::RangeInclusive;

/// Every layer type, declared once: its name, its parameters, how many bottoms and how many tops it may have, and what makes
/// the layer from its parameters and the `place` where it stands ([`layers::build`](crate::layers::build)).
macro_rules! layer_types {
    ($then:ident) => { $then! { place;
        /// Blobs that the program fills
        Input(params: InputParams), 0..=0, 1..=MANY => FilledData::input(place.layer, params, place.options.seed);
        /// Blobs with synthetic contents
        DummyData(params: DummyDataParams), 0..=0, 1..=MANY => FilledData::dummy(place.layer, params, place.options.seed);
        /// Image files from a list
        ImageData(params: ImageDataParams), 0..=0, 2..=2 =>
            DataLayer::images((place.net, place.layer), params, place.options)?;
        /// Images from MNIST or CIFAR-10 files
        Data(params: DataParams), 0..=0, 1..=2 =>
            DataLayer::data((place.net, place.layer), params, place.options)?;
        /// Convolution, the layer that gets micro-batches
        Convolution(params: ConvolutionParams), 1..=1, 1..=1 => Convolution::new(params.clone());
        /// Fully connected
        InnerProduct(params: InnerProductParams), 1..=1, 1..=1 => InnerProductLayer::new(params);
        /// Rectifier
        ReLU(params: ReluParams), 1..=1, 1..=1 => Relu(params.clone());
        /// Maximum or average of windows
        Pooling(params: PoolingParams), 1..=1, 1..=1 => Pooling::new(params);
        /// Local response normalisation
        LRN(params: LrnParams), 1..=1, 1..=1 => LrnLayer::new(params);
        /// Batch normalisation, with or without scale and bias
        BatchNorm(params: BatchNormParams), 1..=1, 1..=1 => BatchNorm::new(params, place.net.state.phase);
        /// Scale and bias per channel
        Scale(params: ScaleParams), 1..=1, 1..=1 => Scale::new(params);
        /// Sum, product or maximum of blobs
        Eltwise(params: EltwiseParams), 2..=MANY, 1..=1 => Eltwise(params.operation.clone());
        /// Blobs joined along an axis
        Concat(params: ConcatParams), 1..=MANY, 1..=1 => Concat::new(params);
        /// Copies its bottom to every top; a net needs it only if it is written out
        Split, 1..=1, 1..=MANY => Split { tops: place.layer.tops.len() };
        /// Random zeros in TRAIN
        Dropout(params: DropoutParams), 1..=1, 1..=1 => DropoutLayer::new(params, place);
        /// Probabilities of classes
        Softmax(params: SoftmaxParams), 1..=1, 1..=1 => Softmax::new(params);
        /// Cross entropy of classes and labels
        SoftmaxWithLoss(params: SoftmaxWithLossParams), 2..=2, 1..=1 =>
            SoftmaxWithLoss::new(params, place.layer.loss_weight(0));
        /// Share of labels among the highest scores
        Accuracy(params: AccuracyParams), 2..=2, 1..=1 => Accuracy::new(params);
        /// Several axes become one
        Flatten(params: FlattenParams), 1..=1, 1..=1 => Reshape::Flatten(params.clone());
        /// Other axes for the same elements
        Reshape(params: ReshapeParams), 1..=1, 1..=1 => Reshape::Replace(params.clone());
    } };
}

pub(crate) use layer_types;

/// Any number of bottoms or tops.
const MANY: usize = usize::MAX;

macro_rules! declare_kind {
    ($place:ident; $(
        $(#[$doc:meta])*
        $name:ident $(($params:ident: $type:ty))?, $bottoms:expr, $tops:expr => $layer:expr;
    )*) => {
        /// A layer's type, with what its type-specific message (`convolution_param` …) says.
        #[derive(Debug, Clone, PartialEq)]
        pub enum LayerKind {
            $($(#[$doc])* $name $(($type))?,)*
        }

        impl LayerKind {
            /// Every type name, as nets spell it.
            pub const TYPES: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];

            /// The parameters of a layer of type `name`.
            pub(super) fn read(name: &str, layer: &mut Reader<'_>) -> Result<Self, Error> {
                match name {
                    $(stringify!($name) => Ok(Self::$name $((<$type>::read(layer)?))?),)*
                    _ => Err(unknown(name, layer)),
                }
            }

            /// The type's name, as nets spell it.
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => stringify!($name),)*
                }
            }

            /// How many bottoms and how many tops a layer of this type may have.
            pub fn blobs(&self) -> [RangeInclusive<usize>; 2] {
                match self {
                    $(Self::$name { .. } => [$bottoms, $tops],)*
                }
            }
        }
    };
}

layer_types!(declare_kind);

impl LayerKind {
    /// Samples per iteration, if a layer of this type decides that.
    pub fn mini_batch(&self) -> Option<usize> {
        match self {
            Self::Input(params) => Some(params.shape(0)[0]),
            Self::DummyData(params) => Some(params.shape(0)[0]),
            Self::ImageData(params) => Some(params.batch_size),
            Self::Data(params) => Some(params.batch_size),
            _ => None,
        }
    }

    /// Makes it `samples` per iteration; no effect on a layer that does not decide that.
    pub fn set_mini_batch(&mut self, samples: usize) {
        match self {
            Self::Input(InputParams { shapes }) | Self::DummyData(DummyDataParams { shapes, .. }) => {
                shapes.iter_mut().for_each(|shape| shape[0] = samples);
            }
            Self::ImageData(params) => params.batch_size = samples,
            Self::Data(params) => params.batch_size = samples,
            _ => {}
        }
    }
}

fn unknown(name: &str, layer: &Reader<'_>) -> Error {
    let advice = match nearest(name) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("the types are {}", LayerKind::TYPES.join(", ")),
    };
    layer.error_at("type", format!("layer type '{name}' is not known; {advice}"))
}

/// A type's name without what notations differ in: `INNER_PRODUCT` is `InnerProduct`.
pub(super) fn spelling(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "")
}

/// The type whose name differs least from `name`, among those of which at most a third of the letters differ.
fn nearest(name: &str) -> Option<&'static str> {
    let distance = |candidate: &&str| strsim::levenshtein(&spelling(name), &spelling(candidate));
    let near = LayerKind::TYPES.into_iter().filter(|candidate| distance(candidate) * 3 <= candidate.len());
    near.min_by_key(distance)
}
