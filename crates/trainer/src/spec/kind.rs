//! The layer types.

use super::{
    AccuracyParams, BatchNormParams, ConcatParams, ConvolutionParams, DataParams, DropoutParams,
    DummyDataParams, EltwiseParams, EluParams, FlattenParams, ImageDataParams, InnerProductParams,
    InputParams, LrnParams, PReluParams, PoolingParams, PowerParams, ReluParams, ReshapeParams, ScaleParams,
    SigmoidParams, SliceParams, SoftmaxParams, SoftmaxWithLossParams, TanHParams,
};
use crate::prototxt::{Reader, Result};
use std::ops::RangeInclusive;

/// Every layer type, declared once: its name, its parameters, how many bottoms and how many tops it may have, and the
/// layer, made from its parameters and the `place` where it stands ([`layers::build`](crate::layers::build)).
macro_rules! layer_types {
    ($then:ident) => { $then! { place;
        Input(params: InputParams), 0..=0, 1..=MANY =>
            FilledData::new(place, &params.shapes, &[Filler::uniform(-1.0, 1.0)], true); "Blobs that the program fills"
        DummyData(params: DummyDataParams), 0..=0, 1..=MANY =>
            FilledData::new(place, &params.shapes, &params.fillers, false); "Blobs with synthetic contents"
        ImageData(params: ImageDataParams), 0..=0, 2..=2 =>
            source::images(place, params)?; "Image files from a list"
        Data(params: DataParams), 0..=0, 1..=2 => source::data(place, params)?; "Images of MNIST or CIFAR-10"
        Convolution(params: ConvolutionParams), 1..=1, 1..=1 =>
            ConvolutionLayer::new(params.clone(), place.options.device.format());
            "Convolution, the layer that gets micro-batches"
        InnerProduct(params: InnerProductParams), 1..=1, 1..=1 => InnerProductLayer::new(params); "Fully connected"
        ReLU(params: ReluParams), 1..=1, 1..=1 =>
            Elementwise::new(&Activation::Relu { slope: params.negative_slope }); "Rectifier"
        PReLU(params: PReluParams), 1..=1, 1..=1 => PRelu::new(params); "Rectifier with learned slopes"
        ELU(params: EluParams), 1..=1, 1..=1 => Elementwise::new(&Activation::Elu { alpha: params.alpha });
            "Exponential linear units"
        Sigmoid(_params: SigmoidParams), 1..=1, 1..=1 => Elementwise::new(&Activation::Sigmoid);
            "The logistic function"
        TanH(_params: TanHParams), 1..=1, 1..=1 => Elementwise::new(&Activation::TanH); "The hyperbolic tangent"
        Power(params: PowerParams), 1..=1, 1..=1 =>
            Elementwise::new(&Activation::Power { power: params.power, scale: params.scale, shift: params.shift });
            "A power of a linear function"
        Pooling(params: PoolingParams), 1..=1, 1..=1 => Pooling::new(params); "Maximum or average of windows"
        LRN(params: LrnParams), 1..=1, 1..=1 => {
            let &LrnParams { local_size: size, alpha, beta, k, norm_region: region } = params;
            LrnLayer::new(&Lrn { region, size, alpha, beta, k })
        }; "Local response normalisation"
        BatchNorm(params: BatchNormParams), 1..=1, 1..=1 => BatchNorm::new(params, place);
            "Batch normalisation, with or without scale and bias"
        Scale(params: ScaleParams), 1..=2, 1..=1 => Scale::new(params);
            "Scale and bias per channel, or the scale that a second bottom holds"
        Eltwise(params: EltwiseParams), 2..=MANY, 1..=1 => Eltwise(params.operation.clone());
            "Sum, product or maximum of blobs"
        Concat(params: ConcatParams), 1..=MANY, 1..=1 => Concat::new(params); "Blobs joined along an axis"
        Slice(params: SliceParams), 1..=1, 1..=MANY => Slice::new(&(params.clone(), place.layer.tops.len()));
            "A blob cut along an axis"
        Split, 1..=1, 1..=MANY => CopyLayer::new(&Copies::Split(place.layer.tops.len()));
            "Copies its bottom to every top; a net needs it only if it is written out"
        Convert, 1..=1, 1..=1 =>
            CopyLayer::new(&Copies::Convert(place.options.device.format(), None));
            "Its bottom in the format of feature maps; made where a layer reads another format than there is"
        Silence, 1..=MANY, 0..=0 => CopyLayer::new(&Copies::Split(0));
            "Reads blobs, which are no outputs of the net then"
        Dropout(params: DropoutParams), 1..=1, 1..=1 => DropoutLayer::in_phase(params, place); "Random zeros in TRAIN"
        Softmax(params: SoftmaxParams), 1..=1, 1..=1 => Softmax::new(params); "Probabilities of classes"
        SoftmaxWithLoss(params: SoftmaxWithLossParams), 2..=2, 1..=2 =>
            SoftmaxWithLoss::new(&(params.clone(), [0, 1].map(|top| place.layer.loss_weight(top))));
            "Cross entropy of classes and labels; and probabilities"
        Objective, 1..=1, 1..=1 => CopyLayer::new(&Copies::Objective(place.layer.loss_weight(0)));
            "Adds the sum of its bottom to the objective; made where a layer that is no loss has a loss_weight"
        Accuracy(params: AccuracyParams), 2..=2, 1..=2 => Accuracy::new(params);
            "Share of labels among the highest scores; and that of each class"
        Flatten(params: FlattenParams), 1..=1, 1..=1 =>
            CopyLayer::new(&Copies::Flatten(params.clone())); "Several axes become one"
        Reshape(params: ReshapeParams), 1..=1, 1..=1 => CopyLayer::new(&Copies::Reshape(params.clone()));
            "Other axes for the same elements"
    } };
}

pub(crate) use layer_types;

/// Any number of bottoms or tops.
const MANY: usize = usize::MAX;

macro_rules! declare_kind {
    ($place:ident; $(
        $name:ident $(($params:ident: $type:ty))?, $bottoms:expr, $tops:expr => $layer:expr; $doc:literal
    )*) => {
        /// A layer's type, with what its type-specific message (`convolution_param` …) says.
        #[derive(Debug, Clone, PartialEq)]
        pub enum LayerKind {
            $(#[doc = $doc] $name $(($type))?,)*
            /// A type that is not known, with what is said where such a layer takes part
            Unknown(String),
        }

        impl LayerKind {
            /// Every type name that is known, as nets spell it.
            pub const TYPES: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];

            /// The parameters of a layer of type `name`.
            pub(super) fn read(name: &str, layer: &mut Reader<'_>) -> Result<Self> {
                match name {
                    $(stringify!($name) => Ok(Self::$name $((<$type>::read(layer)?))?),)*
                    // A filter for each channel, in the notation of MobileNet's authors and of others.
                    "ConvolutionDepthwise" | "DepthwiseConvolution" => {
                        let params = ConvolutionParams::read(layer)?;
                        let group = if params.group > 1 { params.group } else { params.num_output };
                        Ok(Self::Convolution(ConvolutionParams { group, ..params }))
                    }
                    _ => {
                        layer.ignore_all();
                        Ok(Self::Unknown(unknown(name)))
                    }
                }
            }

            /// The type's name, as nets spell it.
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => stringify!($name),)*
                    Self::Unknown(_) => "Unknown",
                }
            }

            /// How many bottoms and how many tops a layer of this type may have.
            pub fn blobs(&self) -> [RangeInclusive<usize>; 2] {
                match self {
                    $(Self::$name { .. } => [$bottoms, $tops],)*
                    Self::Unknown(_) => [0..=MANY, 0..=MANY],
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
            Self::Input(InputParams { shapes }) | Self::DummyData(DummyDataParams { shapes, .. }) => {
                Some(shapes[0][0])
            }
            Self::ImageData(params) => Some(params.batch_size),
            Self::Data(params) => Some(params.batch_size),
            Self::Reshape(ReshapeParams { axis: 0, dims, .. }) => usize::try_from(*dims.first()?).ok(),
            _ => None,
        }
    }

    /// Whether it reads a data set.
    pub fn reads_data(&self) -> bool {
        matches!(self, Self::Data(_) | Self::ImageData(_))
    }

    /// Channels of its top, of a layer with weights that decides that.
    pub fn outputs(&self) -> Option<usize> {
        match self {
            Self::InnerProduct(params) => Some(params.num_output),
            Self::Convolution(params) => Some(params.num_output),
            _ => None,
        }
    }

    /// Whether a layer of this type has parameters.
    pub(super) fn has_parameters(&self) -> bool {
        use LayerKind::{BatchNorm, PReLU, Scale};
        self.outputs().is_some() || matches!(self, BatchNorm(_) | Scale(_) | PReLU(_))
    }

    /// Makes it `samples` per iteration; no effect on a layer that does not decide that.
    pub fn set_mini_batch(&mut self, samples: usize) {
        match self {
            Self::Input(InputParams { shapes }) | Self::DummyData(DummyDataParams { shapes, .. }) => {
                shapes.iter_mut().for_each(|shape| shape[0] = samples);
            }
            Self::ImageData(params) => params.batch_size = samples,
            Self::Data(params) => params.batch_size = samples,
            Self::Reshape(ReshapeParams { axis: 0, dims, .. }) => {
                dims.iter_mut().take(1).for_each(|dim| *dim = samples as i64)
            }
            _ => {}
        }
    }
}

/// Caffe's types that are none here: their likes among the known ones would be wrong advice.
const OTHERS: &str = "AbsVal ArgMax BNLL BatchReindex Bias Clip ContrastiveLoss Crop Deconvolution Embed EuclideanLoss Exp \
    Filter HDF5Data HDF5Output HingeLoss Im2col InfogainLoss LSTM Log MVN MemoryData MultinomialLogisticLoss Parameter Python \
    RNN Recurrent Reduction SPP SigmoidCrossEntropyLoss Swish Threshold Tile WindowData";

fn unknown(name: &str) -> String {
    if OTHERS.split(' ').any(|other| spelling(other) == spelling(name)) {
        return format!("Caffe's layer type {name} is not supported");
    }
    let advice = match nearest(name) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("the types are {}", offered().collect::<Vec<_>>().join(", ")),
    };
    format!("layer type '{name}' is not known; {advice}")
}

/// The types that a net file has a reason to name: the others are made where a layer needs them.
fn offered() -> impl Iterator<Item = &'static str> {
    LayerKind::TYPES.into_iter().filter(|name| !["Convert", "Objective"].contains(name))
}

/// A type's name without what notations differ in: `INNER_PRODUCT` is `InnerProduct`.
pub(super) fn spelling(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "")
}

/// The type whose name differs least from `name`, among those of which at most a third of the letters differ.
fn nearest(name: &str) -> Option<&'static str> {
    let distance = |candidate: &&str| strsim::levenshtein(&spelling(name), &spelling(candidate));
    let near = offered().filter(|candidate| distance(candidate) * 3 <= candidate.len());
    near.min_by_key(distance)
}
