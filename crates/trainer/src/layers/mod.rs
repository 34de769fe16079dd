//! The layers: what each declares to the graph, and its passes over views.
//!
//! A layer knows shapes, parameters and which operation to call; the arithmetic is in `cudnn-layers`. It owns no blob:
//! before anything runs it declares what it produces and what its backward pass will need to see again
//! ([`Declaration`]); at each step it is handed exactly that ([`Forward`], [`Backward`]).

mod combine;
mod convolution;
mod elementwise;
mod inner_product;
mod norm;
mod pooling;
mod registry;
mod shape;
mod softmax;
mod source;

pub use tensor::Out;

use crate::data::Loader;
use crate::error::BoxError;
use crate::spec::{Filler, LayerSpec, NetSpec};
use std::any::Any;
use tensor::{Device, Space, TensorType, View, ViewMut};

pub use convolution::ConvolutionLayer;
pub use registry::{build, reads};
pub(crate) use shape::{Copies, CopyLayer};

/// What a layer tells the graph about itself, given the shapes of its bottoms.
#[derive(Clone, Debug, Default)]
pub struct Declaration {
    /// Extents and elements of every top that it may have, of which a file may name fewer.
    pub tops: Vec<TensorType>,
    /// Parameters and persistent state, in the order of Caffe's blobs.
    pub params: Vec<ParamDeclaration>,
    /// For each bottom, whether the layer can give a gradient to it. All `false`: there is no backward pass.
    pub gradients: Vec<bool>,
    /// Whether backward computes the first bottom's gradient even where no layer needs it: then the graph adds its space
    /// behind the scratch of the backward pass.
    pub always_propagates: bool,
    /// Of how many bottoms, from the first on, backward reads the data.
    pub read_bottoms: usize,
    /// What backward wants to know of the tops' data.
    pub needs_top: Need,
    /// What is kept from the forward to the backward pass.
    pub saved: Space,
    /// Whether a repeated forward pass reads that, instead of making it again.
    pub repeats_from_saved: bool,
    /// Scratch of the forward and of the backward pass; of a convolution, as its plan says once it is installed.
    pub scratch: [Space; 2],
    /// What is left of the bottom's data if the top is written over it, and with it the bottom's gradient over the top's:
    /// [`Need::Sign`] if the sign stays where the layer lets a gradient pass. `None` if it cannot be.
    pub in_place: Option<Need>,
    /// How much of a ReLU that follows in place the layer can take over.
    pub absorbs: Absorbed,
    /// Whether the tops are filled once in an arena and never change: then nothing may overwrite them.
    pub constant: bool,
    /// For each top, its weight in the objective; empty unless the layer is a loss.
    pub loss_weights: Vec<f32>,
}

/// A parameter, or a piece of state that persists as parameters do.
#[derive(Clone, Debug)]
pub struct ParamDeclaration {
    /// Its extents, and its elements as passes read them. The solver keeps single precision in the same order.
    pub shape: TensorType,
    /// Its first values.
    pub filler: Filler,
    /// Whether the solver changes it (a filter) or the layer itself does (a running mean).
    pub learned: bool,
}

impl ParamDeclaration {
    /// A parameter that the solver changes.
    pub fn learned(shape: TensorType, filler: Filler) -> Self {
        Self { shape, filler, learned: true }
    }
}

impl Declaration {
    /// Of a layer with one bottom, which can get a gradient, and one top.
    pub fn one(top: TensorType) -> Self {
        Self { tops: vec![top], gradients: vec![true], ..Self::default() }
    }
}

/// What a backward pass wants to know of a blob, from the least to the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Nothing.
    #[default]
    Nothing,
    /// Only which values are positive, and only where a gradient arrives: a dropout in place may have zeroed others.
    Sign,
    /// Its values.
    Values,
}

/// The blobs of one forward step.
#[derive(Debug)]
pub struct Forward<'a> {
    /// The number of the mini-batch: the bytes of a `u64`, in the device's memory.
    pub iteration: View<'a>,
    /// Whether this iteration has run the step before: the tops are to be as they were, and nothing else is to change.
    pub repeat: bool,
    /// Bottoms; none in place, where the top holds the bottom's data.
    pub bottoms: Vec<View<'a>>,
    /// Tops.
    pub tops: Vec<ViewMut<'a>>,
    /// Learned parameters; that of the layer before if this one adds its bias.
    pub params: Vec<View<'a>>,
    /// Persistent state.
    pub state: Vec<ViewMut<'a>>,
    /// Whether the layer takes over the ReLU that follows, as far as it [declared](Declaration::absorbs).
    pub rectify: bool,
    /// Whether kernels note when they begin and end.
    pub timed: bool,
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
    /// Bottoms' data, those that the layer declared that it needs.
    pub bottoms: Vec<View<'a>>,
    /// Tops' data, if the layer declared that it needs them.
    pub tops: Vec<View<'a>>,
    /// Gradients of the tops; `None` for a top that leads to no loss. Empty in place.
    pub top_diffs: Vec<Option<View<'a>>>,
    /// Where the bottoms' gradients go; `None` where none is wanted. In place the one entry holds the top's gradient.
    pub bottom_diffs: Vec<Option<Out<'a>>>,
    /// Learned parameters.
    pub params: Vec<View<'a>>,
    /// Where the learned parameters' gradients go; `None` for a frozen one.
    pub param_diffs: Vec<Option<Out<'a>>>,
    /// As in [`Forward::rectify`].
    pub rectify: bool,
    /// As in [`Forward::timed`].
    pub timed: bool,
    /// What forward saved.
    pub saved: View<'a>,
    /// Scratch or workspace of this step.
    pub scratch: ViewMut<'a>,
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

/// How much of a ReLU of slope 0 the layer before it takes over: what saves passes over memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absorbed {
    /// Nothing.
    #[default]
    No,
    /// Its forward pass: the layer writes rectified tops.
    Forward,
    /// Both passes: moreover, backward treats its top's gradient as the ReLU would have.
    Both,
    /// The same, for which backward has to see the sign of its top.
    BothBySign,
}

impl Absorbed {
    /// Whether the backward pass is among what it takes over.
    pub fn is_backward(self) -> bool {
        matches!(self, Self::Both | Self::BothBySign)
    }
}

/// One layer of a net.
#[allow(unused_variables)] // of passes that a layer does not have
pub trait Layer: Any + Send {
    /// Checks the bottoms' shapes and declares everything the graph has to know.
    ///
    /// # Errors
    /// A sentence that says what does not fit; the net adds the layer's name and line.
    fn declare(&mut self, bottoms: &[TensorType]) -> Result<Declaration, String>;

    /// For a layer without bottoms, instead of a forward pass: puts its next data into the tops, the `iteration`th if
    /// they depend on it. It is done before everything else in an iteration, as the host's part in it, and never
    /// recorded; a GPU's copies are launched, not waited for.
    ///
    /// # Errors
    /// Data that cannot be read.
    fn upload(&mut self, device: &Device, iteration: u64, tops: Vec<ViewMut<'_>>) -> Result<(), BoxError> {
        unreachable!("a layer with bottoms computes its tops from them")
    }

    /// Computes the tops from the bottoms, of which there is at least one.
    ///
    /// # Errors
    /// Data out of range, a kernel without a plan, or a library or device that fails.
    fn forward(&mut self, device: &Device, io: Forward<'_>) -> Result<(), BoxError> {
        unreachable!("a layer without bottoms has no forward pass")
    }

    /// Computes the gradients. Called only if [`Declaration::gradients`] has a `true`.
    ///
    /// # Errors
    /// As [`Layer::forward`].
    fn backward(&mut self, device: &Device, io: Backward<'_>) -> Result<(), BoxError> {
        unreachable!("a layer that declares no gradient has no backward pass")
    }
}

impl dyn Layer {
    /// The layer as one whose kernels are planned.
    pub fn convolution(&mut self) -> Option<&mut ConvolutionLayer> {
        (self as &mut dyn Any).downcast_mut()
    }

    /// The layer as what reads a data set.
    pub fn data(&self) -> Option<&Loader> {
        (self as &dyn Any).downcast_ref()
    }

    /// The same, to set its position.
    pub fn data_mut(&mut self) -> Option<&mut Loader> {
        (self as &mut dyn Any).downcast_mut()
    }
}

impl<L: Layer> From<L> for Box<dyn Layer> {
    fn from(layer: L) -> Self {
        Box::new(layer)
    }
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
    /// Channels, height and width; if not given, from the layer's `crop_size` and the like, or a header of the data.
    pub shape: Option<[usize; 3]>,
    /// Whether they only stand for the data, as in a plan: laid out as what every iteration reads. Else made once.
    pub stand_in: bool,
}

/// What a layer is made from.
struct Place<'a> {
    net: &'a NetSpec,
    layer: &'a LayerSpec,
    options: &'a BuildOptions,
}

/// A layer that consists of its parameters and the extents that its declaration computes.
pub(crate) struct Declared<P, E> {
    params: P,
    /// Empty until the layer is declared.
    extents: E,
}

impl<P: Clone, E: Default> Declared<P, E> {
    pub(crate) fn new(params: &P) -> Self {
        Self { params: params.clone(), extents: E::default() }
    }
}

/// Axis `axis` of `shape`, where a negative one counts from the end.
fn axis_of(shape: &TensorType, axis: i32) -> Result<usize, String> {
    shape.axis(i64::from(axis)).ok_or_else(|| format!("there is no axis {axis} in {shape}"))
}

/// The extents (N, C, H, W) of images, which `reader` reads.
fn images(reader: &str, shape: &TensorType) -> Result<[usize; 4], String> {
    let dims = shape.dims().try_into();
    dims.map_err(|_| format!("{reader} reads images (N, C, H, W), not a blob of shape {shape}"))
}
