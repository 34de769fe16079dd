//! The layers: what each declares to the graph, and its passes over views.
//!
//! A layer knows shapes, parameters and which operation to call; the arithmetic is in `cudnn-layers`. It owns no blob:
//! before anything runs it declares what it produces and what its backward pass will need to see again
//! ([`Declaration`]); at each step it is handed exactly that ([`Forward`], [`Backward`]).

mod combine;
mod convolution;
mod elementwise;
mod inner_product;
mod lrn;
mod norm;
mod pooling;
mod shape;
mod softmax;
mod source;

use crate::{
    data::DataSummary,
    error::{BoxError, NetError},
    spec::{Filler, LayerKind, LayerSpec, NetSpec},
};
use cudnn_layers::conv::ConvOp;
use elementwise::Relu;
use planner::{Configuration, Kernel};
use tensor::{Accumulate, Device, Mark, Space, TensorType, View, ViewMut};

/// What a layer tells the graph about itself, given the shapes of its bottoms.
#[derive(Clone, Debug, Default)]
pub struct Declaration {
    /// Extents and elements of every top.
    pub tops: Vec<TensorType>,
    /// Parameters and persistent state, in the order of Caffe's blobs.
    pub params: Vec<ParamDeclaration>,
    /// For each bottom, whether the layer can give a gradient to it. All `false`: there is no backward pass.
    pub gradients: Vec<bool>,
    /// Whether backward computes the only bottom's gradient even where nobody wants it: then the graph adds its space behind
    /// the scratch of the backward pass.
    pub always_propagates: bool,
    /// Whether backward reads the bottoms' data.
    pub needs_bottom: bool,
    /// What backward wants to know of the tops' data.
    pub needs_top: Need,
    /// What is kept from the forward to the backward pass.
    pub saved: Space,
    /// Scratch of the forward and of the backward pass.
    pub scratch: [Space; 2],
    /// Whether a top may take the place of its bottom.
    pub in_place: InPlace,
    /// Whether the tops are filled once and never change: then nothing may overwrite them.
    pub constant: bool,
    /// For each top, its weight in the objective; empty unless the layer is a loss.
    pub loss_weights: Vec<f32>,
}

/// A parameter, or a piece of state that persists as parameters do.
#[derive(Clone, Debug)]
pub struct ParamDeclaration {
    /// Its extents and elements.
    pub shape: TensorType,
    /// Its first values.
    pub filler: Filler,
    /// Whether the solver changes it (a filter) or the layer itself does (a running mean).
    pub learned: bool,
}

/// What a backward pass wants to know of a blob.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    #[default]
    Nothing,
    /// Only where it is positive, at least where a gradient arrives: a dropout in place may have zeroed the rest.
    Sign,
    /// Its values.
    Values,
}

/// Whether a layer can write its top over its bottom, and its bottom's gradient over its top's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InPlace {
    /// It cannot.
    #[default]
    No,
    /// It can.
    Yes,
    /// It can, and where it lets a gradient pass, the sign of the data stays: [`Need::Sign`] is still met.
    KeepsSign,
}

impl InPlace {
    /// What both allow.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::KeepsSign,
        }
    }
}

/// The blobs of one forward step.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Completed iterations: the bytes of a `u64`, in the device's memory.
    pub iteration: View<'a>,
    /// Whether this iteration has run the step before: the tops are to be the same again, and nothing else is to change.
    pub repeat: bool,
    /// Bottoms; none in place, where the top holds the bottom's data.
    pub bottoms: Vec<View<'a>>,
    /// Tops.
    pub tops: Vec<ViewMut<'a>>,
    /// Learned parameters.
    pub params: Vec<View<'a>>,
    /// Persistent state.
    pub state: Vec<ViewMut<'a>>,
    /// What backward will find again.
    pub saved: ViewMut<'a>,
    /// Scratch or workspace of this step.
    pub scratch: ViewMut<'a>,
}

/// The blobs of one backward step.
#[derive(Debug)]
pub struct Backward<'a> {
    /// As in [`Forward`].
    pub iteration: View<'a>,
    /// Bottoms' data, if the layer declared that it needs them.
    pub bottoms: Vec<View<'a>>,
    /// Tops' data, if the layer declared that it needs them.
    pub tops: Vec<View<'a>>,
    /// Gradients of the tops; `None` for a top that leads to no loss. Empty in place.
    pub top_diffs: Vec<Option<View<'a>>>,
    /// Where the bottoms' gradients go; `None` where none is wanted. In place the one entry holds the top's gradient.
    pub bottom_diffs: Vec<Option<Gradient<'a>>>,
    /// Learned parameters.
    pub params: Vec<View<'a>>,
    /// Where the learned parameters' gradients go; `None` for a frozen one.
    pub param_diffs: Vec<Option<Gradient<'a>>>,
    /// Persistent state.
    pub state: Vec<View<'a>>,
    /// What forward saved.
    pub saved: View<'a>,
    /// Scratch or workspace of this step.
    pub scratch: ViewMut<'a>,
}

/// A gradient to be written or added to.
#[derive(Debug)]
pub struct Gradient<'a> {
    /// Its elements.
    pub diff: ViewMut<'a>,
    /// Whether an earlier step has already contributed.
    pub accumulate: Accumulate,
}

impl<'a> Backward<'a> {
    /// The gradient of the only top.
    ///
    /// # Panics
    /// If it is missing: the schedule runs no backward pass without one.
    pub fn top_diff(&self) -> View<'a> {
        self.top_diffs[0].expect("a backward pass has a gradient to pass on")
    }
}

/// How much of a ReLU that follows in place a layer takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absorbed {
    /// Nothing.
    #[default]
    No,
    /// Its forward pass: the layer writes rectified tops.
    Forward,
    /// Both passes: moreover, backward treats its top's gradient as the ReLU would have.
    Both,
}

/// One layer of a net.
pub trait Layer: Send {
    /// Checks the bottoms' shapes and declares everything the graph has to know.
    ///
    /// # Errors
    /// A sentence that says what does not fit; the net adds the layer's name and line.
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String>;

    /// For a layer without bottoms, in the place of a forward pass: puts its next data into the tops, the `iteration`th if
    /// they depend on it. It is done before everything else in an iteration, as the host's part in it, and never recorded;
    /// a GPU's copies are launched, not waited for.
    ///
    /// # Errors
    /// Data that cannot be read.
    fn upload(&mut self, device: &Device, iteration: u64, tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        let _ = (device, iteration, tops);
        unreachable!("a layer with bottoms computes its tops from them")
    }

    /// Computes the tops from the bottoms, of which there is at least one.
    ///
    /// # Errors
    /// Only for data out of range.
    fn forward(&mut self, device: &Device, io: Forward<'_>) -> Result<(), BoxError> {
        let _ = (device, io);
        unreachable!("a layer without bottoms has no forward pass")
    }

    /// Computes the gradients. Called only if [`Declaration::gradients`] has a `true`.
    ///
    /// # Errors
    /// Only for data out of range.
    fn backward(&mut self, device: &Device, io: Backward<'_>) -> Result<(), BoxError> {
        let _ = (device, io);
        unreachable!("a layer that declares no gradient has no backward pass")
    }

    /// The layer as a ReLU that one before it may absorb.
    fn as_relu(&mut self) -> Option<&mut Relu> {
        None
    }

    /// Takes over the ReLU of slope 0 that follows in place, as far as that saves passes over memory. Called after
    /// [`Layer::declare`], if nobody else reads the layer's top.
    fn absorb_relu(&mut self) -> Absorbed {
        Absorbed::No
    }

    /// The layer as one whose kernels are planned, if it is a convolution.
    fn planned(&mut self) -> Option<&mut dyn PlannedLayer> {
        None
    }

    /// What the layer reads, if it reads a data set.
    fn data(&self) -> Option<DataSummary> {
        None
    }

    /// Where the next sample comes from, for a layer that reads a data set: samples consumed so far.
    fn position(&self) -> Option<u64> {
        None
    }

    /// Continues reading at `position`.
    fn set_position(&mut self, position: u64) {
        let _ = position;
    }

    /// A number for the contents of the data set, for a layer that reads one.
    fn data_digest(&self) -> Option<u32> {
        None
    }

    /// Takes note that the net goes to another arena: what was filled once has to be filled again.
    fn enter_arena(&mut self) {}

    /// Bytes of host memory that the layer holds outside the arena: a data set, mini-batches prepared ahead.
    fn host_bytes(&self) -> u64 {
        0
    }
}

/// A layer whose kernels are planned.
pub trait PlannedLayer {
    /// The kernel of `op` on `device`, named after `layer`.
    fn kernel(&self, device: &Device, layer: &str, op: ConvOp) -> Kernel;

    /// Fixes how `op` will run, with a workspace that begins `offset` bytes into the scratch of its step. Returns the
    /// workspace it takes.
    ///
    /// # Errors
    /// A configuration that does not fit the kernel, or names an unknown algorithm.
    fn install(
        &mut self,
        device: &Device,
        op: ConvOp,
        configuration: &Configuration,
        offset: usize,
    ) -> Result<Space, BoxError>;

    /// Whether kernels are to note when they begin and end.
    fn time_kernels(&mut self, wanted: bool);

    /// When the kernel of `op` last began and ended; `None` if nobody asked before, or it has not run since.
    fn take_marks(&mut self, op: ConvOp) -> Option<[Mark; 2]>;
}

/// What layers are built with, besides their specification.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Where the net runs.
    pub device: Device,
    /// Seed of everything random.
    pub seed: u64,
    /// Synthetic images instead of data sets.
    pub synthetic: Option<SyntheticData>,
}

/// Synthetic images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticData {
    /// Channels, height and width; taken from the layer's `crop_size` and the like, or a header of the data, if not given.
    pub shape: Option<[usize; 3]>,
    /// Labels lie below this.
    pub classes: usize,
    /// Whether they only stand for the data, as in a plan: laid out as what is read at every iteration. Otherwise they are
    /// made once.
    pub stand_in: bool,
}

/// The layer that `layer`, one of `net`'s, describes.
///
/// # Errors
/// Data that cannot be opened; the message names the layer and its line.
pub fn build(net: &NetSpec, layer: &LayerSpec, options: &BuildOptions) -> Result<Box<dyn Layer>, NetError> {
    let fault = |message: String| NetError::Layer {
        location: layer.location.clone(),
        layer: layer.name.clone(),
        message,
    };
    let is_loss = matches!(layer.kind, LayerKind::SoftmaxWithLoss(_));
    if !is_loss && layer.loss_weights.iter().any(|&weight| weight != 0.0) {
        return Err(fault(format!(
            "a loss_weight has no effect on a layer of type {}",
            layer.kind.type_name()
        )));
    }
    registry(net, layer, options).map_err(|error| fault(error.to_string()))
}

/// Every layer type there is.
fn registry(net: &NetSpec, layer: &LayerSpec, options: &BuildOptions) -> Result<Box<dyn Layer>, BoxError> {
    use LayerKind as Kind;
    let (phase, seed) = (net.state.phase, options.seed);
    Ok(match &layer.kind {
        Kind::Input(params) => Box::new(source::FilledData::input(layer, params, seed)),
        Kind::DummyData(params) => Box::new(source::FilledData::dummy(layer, params, seed)),
        Kind::Data(params) => source::data((net, layer), params, options)?,
        Kind::ImageData(params) => source::image_data((net, layer), params, options)?,
        Kind::Convolution(params) => Box::new(convolution::Convolution::new(params.clone())),
        Kind::InnerProduct(params) => Box::new(inner_product::InnerProductLayer::new(params.clone())),
        Kind::ReLU(params) => Box::new(elementwise::Relu::new(*params)),
        Kind::Dropout(params) => {
            let seed = crate::fill::stream(&layer.name) ^ seed;
            Box::new(elementwise::DropoutLayer::new(params.ratio, seed, phase))
        }
        Kind::Pooling(params) => Box::new(pooling::Pooling::new(*params)),
        Kind::LRN(params) => Box::new(lrn::LrnLayer::new(*params)),
        Kind::BatchNorm(params) => Box::new(norm::BatchNorm::new(*params, phase)),
        Kind::Scale(params) => Box::new(norm::Scale::new(*params)),
        Kind::Eltwise(params) => Box::new(combine::Eltwise::new(params.clone())),
        Kind::Concat(params) => Box::new(combine::Concat::new(*params)),
        Kind::Split => Box::new(combine::Split::new(layer.tops.len())),
        Kind::Softmax(params) => Box::new(softmax::Softmax::new(*params)),
        Kind::SoftmaxWithLoss(params) => {
            Box::new(softmax::SoftmaxWithLoss::new(*params, layer.loss_weight(0)))
        }
        Kind::Accuracy(params) => Box::new(softmax::Accuracy::new(*params)),
        Kind::Flatten(params) => Box::new(shape::Reshape::Flatten(*params)),
        Kind::Reshape(params) => Box::new(shape::Reshape::Replace(params.clone())),
    })
}
