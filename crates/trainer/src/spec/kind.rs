//! The layer types.

use std::ops::RangeInclusive;

use super::{
    AccuracyParams, BatchNormParams, ConcatParams, ConvolutionParams, DataParams, DropoutParams,
    DummyDataParams, EltwiseParams, FlattenParams, ImageDataParams, InnerProductParams, InputParams,
    LrnParams, PoolingParams, ReluParams, ReshapeParams, ScaleParams, SoftmaxParams, SoftmaxWithLossParams,
};
use crate::prototxt::{Error, Reader};

/// A layer's type, with what its type-specific message (`convolution_param` …) says.
#[derive(Debug, Clone, PartialEq)]
pub enum LayerKind {
    /// Blobs that the program fills
    Input(InputParams),
    /// Blobs with made-up contents
    DummyData(DummyDataParams),
    /// Image files from a list
    ImageData(ImageDataParams),
    /// Images from MNIST or CIFAR-10 files
    Data(DataParams),
    /// Convolution, the layer that gets micro-batches
    Convolution(ConvolutionParams),
    /// Fully connected
    InnerProduct(InnerProductParams),
    /// Rectifier
    ReLU(ReluParams),
    /// Maximum or average of windows
    Pooling(PoolingParams),
    /// Local response normalisation
    LRN(LrnParams),
    /// Batch normalisation, with or without scale and bias
    BatchNorm(BatchNormParams),
    /// Scale and bias per channel
    Scale(ScaleParams),
    /// Sum, product or maximum of blobs
    Eltwise(EltwiseParams),
    /// Blobs joined along an axis
    Concat(ConcatParams),
    /// Copies its bottom to every top; a net needs it only if it is written out
    Split,
    /// Random zeros in TRAIN
    Dropout(DropoutParams),
    /// Probabilities of classes
    Softmax(SoftmaxParams),
    /// Cross entropy of classes and labels
    SoftmaxWithLoss(SoftmaxWithLossParams),
    /// Share of labels among the highest scores
    Accuracy(AccuracyParams),
    /// Several axes become one
    Flatten(FlattenParams),
    /// Other axes for the same elements
    Reshape(ReshapeParams),
}

impl LayerKind {
    /// Every type name, as nets spell it.
    pub const TYPES: [&str; 20] = [
        "Input",
        "DummyData",
        "ImageData",
        "Data",
        "Convolution",
        "InnerProduct",
        "ReLU",
        "Pooling",
        "LRN",
        "BatchNorm",
        "Scale",
        "Eltwise",
        "Concat",
        "Split",
        "Dropout",
        "Softmax",
        "SoftmaxWithLoss",
        "Accuracy",
        "Flatten",
        "Reshape",
    ];

    /// The layer's parameters, for a layer of type `name` with so many bottoms and tops.
    pub(super) fn read(
        name: &str,
        layer: &mut Reader<'_>,
        bottoms: usize,
        tops: usize,
    ) -> Result<Self, Error> {
        Ok(match name {
            "Input" => Self::Input(InputParams::read(layer, tops)?),
            "DummyData" => Self::DummyData(DummyDataParams::read(layer, tops)?),
            "ImageData" => Self::ImageData(ImageDataParams::read(layer)?),
            "Data" => Self::Data(DataParams::read(layer)?),
            "Convolution" => Self::Convolution(ConvolutionParams::read(layer)?),
            "InnerProduct" => Self::InnerProduct(InnerProductParams::read(layer)?),
            "ReLU" => Self::ReLU(ReluParams::read(layer)?),
            "Pooling" => Self::Pooling(PoolingParams::read(layer)?),
            "LRN" => Self::LRN(LrnParams::read(layer)?),
            "BatchNorm" => Self::BatchNorm(BatchNormParams::read(layer)?),
            "Scale" => Self::Scale(ScaleParams::read(layer)?),
            "Eltwise" => Self::Eltwise(EltwiseParams::read(layer, bottoms)?),
            "Concat" => Self::Concat(ConcatParams::read(layer)?),
            "Split" => Self::Split,
            "Dropout" => Self::Dropout(DropoutParams::read(layer)?),
            "Softmax" => Self::Softmax(SoftmaxParams::read(layer)?),
            "SoftmaxWithLoss" => Self::SoftmaxWithLoss(SoftmaxWithLossParams::read(layer)?),
            "Accuracy" => Self::Accuracy(AccuracyParams::read(layer)?),
            "Flatten" => Self::Flatten(FlattenParams::read(layer)?),
            "Reshape" => Self::Reshape(ReshapeParams::read(layer)?),
            _ => return Err(unknown(name, layer)),
        })
    }

    /// The type's name, as nets spell it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Input(_) => "Input",
            Self::DummyData(_) => "DummyData",
            Self::ImageData(_) => "ImageData",
            Self::Data(_) => "Data",
            Self::Convolution(_) => "Convolution",
            Self::InnerProduct(_) => "InnerProduct",
            Self::ReLU(_) => "ReLU",
            Self::Pooling(_) => "Pooling",
            Self::LRN(_) => "LRN",
            Self::BatchNorm(_) => "BatchNorm",
            Self::Scale(_) => "Scale",
            Self::Eltwise(_) => "Eltwise",
            Self::Concat(_) => "Concat",
            Self::Split => "Split",
            Self::Dropout(_) => "Dropout",
            Self::Softmax(_) => "Softmax",
            Self::SoftmaxWithLoss(_) => "SoftmaxWithLoss",
            Self::Accuracy(_) => "Accuracy",
            Self::Flatten(_) => "Flatten",
            Self::Reshape(_) => "Reshape",
        }
    }

    /// How many bottoms a layer of this type may have.
    pub fn bottoms(&self) -> RangeInclusive<usize> {
        match self {
            Self::Input(_) | Self::DummyData(_) | Self::ImageData(_) | Self::Data(_) => 0..=0,
            Self::Eltwise(_) => 2..=usize::MAX,
            Self::Concat(_) => 1..=usize::MAX,
            Self::SoftmaxWithLoss(_) | Self::Accuracy(_) => 2..=2,
            _ => 1..=1,
        }
    }

    /// How many tops a layer of this type may have.
    pub fn tops(&self) -> RangeInclusive<usize> {
        match self {
            Self::Input(_) | Self::DummyData(_) | Self::Split => 1..=usize::MAX,
            Self::ImageData(_) => 2..=2,
            Self::Data(_) => 1..=2,
            _ => 1..=1,
        }
    }

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

/// The type whose name differs least from `name`, among those of which at most a third of the letters differ.
fn nearest(name: &str) -> Option<&'static str> {
    let spelling = |text: &str| text.to_ascii_lowercase().replace('_', "");
    let distance = |candidate: &&str| edit_distance(&spelling(name), &spelling(candidate));
    let near = LayerKind::TYPES.into_iter().filter(|candidate| distance(candidate) * 3 <= candidate.len());
    near.min_by_key(distance)
}

/// Levenshtein's: insertions, deletions and replacements of letters from `a` to `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..b.len() {
            let replaced = diagonal + usize::from(letter != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
