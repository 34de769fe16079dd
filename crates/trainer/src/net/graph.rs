//! From a list of layers to a graph: blobs in single assignment, who needs a gradient, who runs in place.

use crate::error::{NetError, Result};
use crate::layers::{
    self, Absorbed, BuildOptions, Copies, CopyLayer, Declaration, Layer, Need, ParamDeclaration, reads,
};
use crate::spec::{LayerKind, LayerSpec, NetSpec, ParamSpec};
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use tensor::{Accumulate, ConvGeometry, Format, Space, TensorType, geometry::elements};

/// Index of a [`Value`] in its graph.
pub type ValueId = usize;

/// One assignment of a blob. A layer in place makes a new value of the same name.
#[derive(Clone, Debug)]
pub struct Value {
    /// The blob's name.
    pub name: String,
    /// Its shape.
    pub shape: TensorType,
    /// The node that writes it.
    pub producer: usize,
    /// The nodes that read it, in order.
    pub consumers: Vec<usize>,
    /// The value whose memory it uses: itself, or for a node in place that of its bottom.
    pub root: ValueId,
    /// Whether a gradient of it is wanted: to reach a trained parameter, or as the file forces it.
    pub wants_diff: bool,
    /// Whether a gradient of it is computed: it is wanted, and leads to a loss.
    pub needs_diff: bool,
}

/// A parameter (or state) blob of the net.
#[derive(Clone, Debug)]
pub struct Param {
    /// Layer and index, as in `conv1.0`; of a shared one, those of the first layer that has it.
    pub name: String,
    /// Shape, filler and role.
    pub declaration: ParamDeclaration,
    /// Multiplies the learning rate.
    pub lr_mult: f32,
    /// Multiplies the weight decay.
    pub decay_mult: f32,
    /// Whether the solver updates it.
    pub trained: bool,
}

impl Param {
    /// What the solver keeps of it, and its gradient: single precision in the order in which passes read it.
    pub fn master(&self) -> TensorType {
        let shape = &self.declaration.shape;
        shape.in_format(Format::F32.in_order(shape.format().layout))
    }

    /// The memory of that, and of a copy behind it if passes read another type.
    pub fn space(&self) -> Space {
        let (master, shape) = (self.master(), &self.declaration.shape);
        let copy = (*shape != master).then(|| Space::aligned(shape.space().bytes()));
        Space::all_of([master.space()].into_iter().chain(copy))
    }
}

/// A layer in the graph.
#[derive(Clone, Debug)]
pub struct Node {
    /// What the file says of it.
    pub spec: LayerSpec,
    /// What it reads.
    pub bottoms: Vec<ValueId>,
    /// What it writes.
    pub tops: Vec<ValueId>,
    /// Its parameters, as indices into [`Graph::params`].
    pub params: Vec<usize>,
    /// Those that its passes use: the same, but for a bias that the layer behind adds in its place.
    pub used_params: Vec<usize>,
    /// What it said of itself.
    pub declaration: Declaration,
    /// Whether its top lies in its bottom's memory.
    pub in_place: bool,
    /// Whether it runs backward.
    pub backward: bool,
    /// Whether it takes over the ReLU that follows.
    pub rectify: bool,
    /// How much of it, a ReLU, the layer before takes over.
    pub absorbed: Absorbed,
    /// For each bottom whose gradient it computes, whether that is the first to arrive or adds to others.
    pub propagates: Vec<Option<Accumulate>>,
    /// For each of `used_params` the same; a shared one gets gradients from several nodes.
    pub param_accumulate: Vec<Accumulate>,
}

/// The graph of one net in one phase. Nodes are in execution order, the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The layers.
    pub nodes: Vec<Node>,
    /// The blobs.
    pub values: Vec<Value>,
    /// Parameters and state.
    pub params: Vec<Param>,
}

impl Graph {
    /// Makes and connects the layers of `spec` one by one, checking shapes on the way. Feature maps are of the device's
    /// format: where a layer reads another than there is, one that converts comes before it; so does a copy where it reads
    /// a blob again; and what adds a top to the objective comes behind. Returns all layers, one for each node. Without
    /// `backward`, no node gets a backward pass.
    ///
    /// # Errors
    /// Data that cannot be opened, a bottom that nothing produces (or only a later layer: a cycle), a blob with two
    /// producers, two layers of one name, a shape that does not fit or is larger than any memory, a shared parameter of
    /// another shape.
    pub fn build(
        spec: &NetSpec,
        options: &BuildOptions,
        backward: bool,
    ) -> Result<(Self, Vec<Box<dyn Layer>>)> {
        let (graph, layers, nodes, current, converted, shared) = Default::default();
        let format = options.device.format();
        let mut builder = Builder { spec, format, graph, layers, converted, nodes, current, shared };
        for layer_spec in &spec.layers {
            let layer = layers::build(spec, layer_spec, options)?;
            builder.add(layer_spec, layer).map_err(|message| NetError::layer(layer_spec, message))?;
        }
        let Builder { mut graph, layers, .. } = builder;
        if backward {
            graph.find_gradients();
        }
        let is_read = |node: &&Node| {
            matches!(node.spec.kind, LayerKind::SoftmaxWithLoss(_)) && graph.values[node.tops[0]].needs_diff
        };
        if let Some(node) = graph.nodes.iter().find(is_read) {
            let message =
                "a layer that leads to a loss reads this one: weigh losses by `loss_weight` instead";
            return Err(NetError::layer(&node.spec, message));
        }
        graph.alias_in_place();
        Ok((graph, layers))
    }

    /// Marks nodes that run backward and values with a gradient: those on a path from a trained parameter to a loss.
    fn find_gradients(&mut self) {
        let mut leads_to_loss = vec![false; self.values.len()];
        let mut reached = vec![false; self.params.len()];
        let first = |is_reached: &mut bool| match std::mem::replace(is_reached, true) {
            false => Accumulate::Replace,
            true => Accumulate::Add,
        };
        for index in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[index];
            let is_loss = node.declaration.loss_weights.iter().any(|&weight| weight != 0.0);
            if !is_loss && !node.tops.iter().any(|&top| leads_to_loss[top]) {
                continue;
            }
            for (i, &bottom) in node.bottoms.iter().enumerate() {
                let passes = node.declaration.gradients[i] && node.spec.propagate_down.get(i) != Some(&false);
                leads_to_loss[bottom] |= passes;
                let value = &mut self.values[bottom];
                node.propagates[i] = (passes && value.wants_diff).then(|| first(&mut value.needs_diff));
            }
            let trains = node.params.iter().any(|&param| self.params[param].trained);
            node.backward = trains || node.propagates.iter().any(Option::is_some);
            if node.backward {
                let params = node.params.iter();
                node.param_accumulate = params.map(|&param| first(&mut reached[param])).collect();
            }
            if node.backward && node.declaration.always_propagates && node.propagates[0].is_none() {
                let [_, scratch] = &mut node.declaration.scratch;
                *scratch = Space::all_of([*scratch, self.values[node.bottoms[0]].shape.space()]);
            }
        }
    }

    /// Gives the top of each in-place layer its bottom's memory, where that destroys nothing that is read later. Where
    /// it would, the top gets memory of its own: the results are the same.
    fn alias_in_place(&mut self) {
        // Of every root, what is still to be known of the values that lie there.
        let mut needed: Vec<Need> =
            self.values.iter().map(|value| self.nodes[value.producer].needed_of_tops()).collect();
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            let (Some(left), Some(&bottom), Some(&top)) =
                (node.declaration.in_place, node.bottoms.first(), node.tops.first())
            else {
                continue;
            };
            if self.values[bottom].name != self.values[top].name {
                continue;
            }
            let root = self.values[bottom].root;
            if needed[root] <= left && self.values[bottom].consumers.len() == 1 {
                needed[root] = needed[root].max(needed[top]);
                self.values[top].root = root;
                self.nodes[index].in_place = true;
            }
        }
    }
}

impl Node {
    /// What a later layer in place has to leave of the tops: what is read after the iteration or by the next one, and what
    /// this layer's backward pass needs.
    fn needed_of_tops(&self) -> Need {
        match self.declaration.needs_top {
            _ if self.declaration.constant || !self.declaration.loss_weights.is_empty() => Need::Values,
            _ if !self.backward => Need::Nothing,
            // It may come to do what a ReLU before it does.
            Need::Nothing if matches!(self.spec.kind, LayerKind::Pooling(_)) => Need::Sign,
            needed => needed,
        }
    }
}

struct Builder<'a> {
    spec: &'a NetSpec,
    format: Format,
    graph: Graph,
    /// That of every node.
    layers: Vec<Box<dyn Layer>>,
    /// What values were converted to.
    converted: HashMap<(ValueId, Format, Option<ConvGeometry>), ValueId>,
    /// The node of every layer's name.
    nodes: HashMap<&'a str, usize>,
    /// The value that a blob's name stands for at this point of the file.
    current: HashMap<&'a str, ValueId>,
    /// The parameters that layers may share, by the names for that.
    shared: HashMap<String, usize>,
}

impl<'a> Builder<'a> {
    /// Adds a layer, or says what is wrong with it.
    fn add(&mut self, spec: &'a LayerSpec, mut layer: Box<dyn Layer>) -> Result<(), String> {
        if let Some(&other) = self.nodes.get(spec.name.as_str()) {
            let place = &self.graph.nodes[other].spec.location;
            return Err(format!(
                "there is another layer of this name ({place}); parameters are kept by layer name"
            ));
        }
        let (mut bottoms, mut before) = (Vec::with_capacity(spec.bottoms.len()), HashSet::new());
        for (index, name) in spec.bottoms.iter().enumerate() {
            let mut bottom = self.bottom(name)?;
            // Caffe copies every blob with several readers. Here the gradients of several layers add up in one place, but
            // one layer gives each of its bottoms a gradient of its own.
            if !before.insert(name) {
                let copy = format!("{name}_{}_{index}_split", spec.name);
                bottom = self.copy(spec, &copy, (LayerKind::Split, Copies::Split(1)), (bottom, &copy))?;
            }
            let shape = &self.graph.values[bottom].shape;
            let wanted = reads(spec, index, shape, self.format);
            let convolution = layer.convolution().filter(|_| self.is_data(bottom));
            let blocks = convolution.and_then(|convolution| convolution.read_blocks(shape));
            bottoms.push(self.converted(spec, bottom, (wanted, blocks))?);
        }
        self.nodes.insert(&spec.name, self.graph.nodes.len());
        let shapes: Vec<TensorType> =
            bottoms.iter().map(|&bottom| self.graph.values[bottom].shape.clone()).collect();
        let declaration = layer.declare(&shapes)?;
        let params = self.params(spec, &declaration.params)?;
        let tops = (spec.tops.iter().zip(&declaration.tops))
            .map(|(name, shape)| self.top(spec, name, shape))
            .collect::<Result<Vec<_>, _>>()?;
        let weighs_itself = !declaration.loss_weights.is_empty();
        self.push(spec, layer, declaration, (bottoms, tops.clone(), params));
        for (index, (blob, top)) in spec.tops.iter().zip(tops).enumerate() {
            let weight = spec.loss_weight(index);
            if weight != 0.0 && !weighs_itself {
                let (top, name) = (self.converted(spec, top, (Format::F32, None))?, &spec.name);
                let (name, copies) = (format!("{name}_{blob}_objective"), Copies::Objective(weight));
                let top = self.copy(spec, &name, (LayerKind::Objective, copies), (top, blob))?;
                self.current.insert(blob, top);
            }
        }
        Ok(())
    }

    /// The next node, with its blobs and parameters.
    fn push(
        &mut self,
        spec: &LayerSpec,
        layer: Box<dyn Layer>,
        declaration: Declaration,
        (bottoms, tops, params): (Vec<ValueId>, Vec<ValueId>, Vec<usize>),
    ) {
        let index = self.graph.nodes.len();
        let Graph { values, params: all, .. } = &mut self.graph;
        bottoms.iter().for_each(|&bottom| values[bottom].consumers.push(index));
        let mut passes = bottoms.iter().zip(&declaration.gradients);
        let wants_diff = params.iter().any(|&param| all[param].trained)
            || passes.any(|(&bottom, &gradient)| gradient && values[bottom].wants_diff);
        tops.iter().for_each(|&top| values[top].wants_diff |= wants_diff);
        self.layers.push(layer);
        self.graph.nodes.push(Node {
            spec: spec.clone(),
            propagates: vec![None; bottoms.len()],
            param_accumulate: Vec::new(),
            bottoms,
            tops,
            used_params: params.clone(),
            params,
            declaration,
            in_place: false,
            backward: false,
            rectify: false,
            absorbed: Absorbed::No,
        });
    }

    /// Whether a value has no gradient, whatever reads it, as it comes from outside of the net.
    fn is_data(&self, value: ValueId) -> bool {
        let producer = &self.graph.nodes[self.graph.values[value].producer];
        producer.bottoms.is_empty() && !self.spec.force_backward
    }

    /// `value` in this format, or as this convolution's blocks, for `reader`: itself, or what a layer makes of it.
    fn converted(
        &mut self,
        reader: &LayerSpec,
        value: ValueId,
        (format, blocks): (Format, Option<ConvGeometry>),
    ) -> Result<ValueId, String> {
        let Value { name: blob, shape, .. } = &self.graph.values[value];
        let format = shape.in_format(format).format();
        if shape.format() == format && blocks.is_none() {
            return Ok(value);
        }
        if let Some(&known) = self.converted.get(&(value, format, blocks)) {
            return Ok(known);
        }
        let (blob, name) = (blob.clone(), format!("{blob}_{}_convert", reader.name));
        // Who asks for the blob wants no blocks.
        let top = if blocks.is_some() { &name } else { &blob };
        let copies = (LayerKind::Convert, Copies::Convert(format, blocks));
        let top = self.copy(reader, &name, copies, (value, top))?;
        self.converted.insert((value, format, blocks), top);
        Ok(top)
    }

    /// Adds a layer `name`, which the file has not, for one that it has: `value` is copied to a new one of the blob `top`.
    fn copy(
        &mut self,
        owner: &LayerSpec,
        name: &str,
        (kind, copies): (LayerKind, Copies),
        (value, top): (ValueId, &str),
    ) -> Result<ValueId, String> {
        let Value { name: blob, shape, .. } = &self.graph.values[value];
        let (blobs, shape) = ([vec![blob.clone()], vec![top.to_owned()]], shape.clone());
        let spec = LayerSpec::new(name.to_owned(), kind, blobs, owner.location.clone());
        let mut layer = Box::new(CopyLayer::new(&copies));
        let declaration = layer.declare(&[shape])?;
        let top = self.value(top, &declaration.tops[0]);
        self.push(&spec, layer, declaration, (vec![value], vec![top], Vec::new()));
        Ok(top)
    }

    fn bottom(&self, name: &str) -> Result<ValueId, String> {
        self.current.get(name).copied().ok_or_else(|| {
            match self.spec.layers.iter().find(|layer| layer.tops.iter().any(|top| top == name)) {
                Some(later) => format!(
                    "bottom '{name}' comes only from layer '{}' ({}); layers run in the order of the file, so this is \
                     a cycle or a wrong order",
                    later.name, later.location
                ),
                None => format!("bottom '{name}' is not the top of any layer of this phase, level and stages"),
            }
        })
    }

    /// A top of the next node.
    fn top(&mut self, spec: &LayerSpec, name: &'a str, shape: &TensorType) -> Result<ValueId, String> {
        check_size(format_args!("top '{name}'"), shape)?;
        if let Some(&other) = self.current.get(name) {
            let other = self.graph.values[other].producer;
            if other == self.graph.nodes.len() {
                return Err(format!("top '{name}' stands twice"));
            }
            if !spec.bottoms.iter().any(|bottom| bottom == name) {
                let other = &self.graph.nodes[other].spec.name;
                return Err(format!("top '{name}' is already the top of layer '{other}'"));
            }
        }
        let id = self.value(name, shape);
        self.current.insert(name, id);
        Ok(id)
    }

    fn value(&mut self, name: &str, shape: &TensorType) -> ValueId {
        let (id, producer) = (self.graph.values.len(), self.graph.nodes.len());
        let (name, shape) = (name.to_owned(), shape.clone());
        let (consumers, wants_diff) = (Vec::new(), self.spec.force_backward);
        let value = Value { name, shape, producer, consumers, root: id, wants_diff, needs_diff: false };
        self.graph.values.push(value);
        id
    }

    fn params(&mut self, spec: &LayerSpec, declared: &[ParamDeclaration]) -> Result<Vec<usize>, String> {
        let (given, count) = (spec.params.len(), declared.len());
        if given > count {
            return Err(format!("param is given {given} times for {count} parameters"));
        }
        let mut params = Vec::with_capacity(declared.len());
        for (index, declaration) in declared.iter().enumerate() {
            let param = self.param(spec, index, declaration)?;
            if params.contains(&param) {
                let name = &self.graph.params[param].name;
                return Err(format!("it shares parameter '{name}' with itself"));
            }
            params.push(param);
        }
        Ok(params)
    }

    fn param(&mut self, spec: &LayerSpec, at: usize, declared: &ParamDeclaration) -> Result<usize, String> {
        let ParamSpec { name: shared, lr_mult, decay_mult } = spec.param(at);
        if let Some((shared, &param)) = shared.as_ref().and_then(|name| self.shared.get_key_value(name)) {
            let owner = &self.graph.params[param];
            let (shape, own) = (&owner.declaration.shape, &declared.shape);
            let differs = |own: f32, owner: f32| own != 1.0 && own != owner;
            return if shape != own {
                Err(format!("it shares parameter '{shared}' of shape {shape}, but needs {own}"))
            } else if differs(lr_mult, owner.lr_mult) || differs(decay_mult, owner.decay_mult) {
                Err(format!(
                    "it shares parameter '{shared}', for which the first layer says another lr_mult or decay_mult"
                ))
            } else if owner.declaration.learned != declared.learned {
                Err(format!(
                    "it shares parameter '{shared}', which only one of the layers learns by gradients"
                ))
            } else {
                Ok(param)
            };
        }
        check_size(format_args!("parameter {at}"), &declared.shape)?;
        let (id, declaration) = (self.graph.params.len(), declared.clone());
        self.shared.extend(shared.map(|name| (name, id)));
        let name = format!("{}.{at}", spec.name);
        let trained = declared.learned && lr_mult != 0.0;
        self.graph.params.push(Param { name, declaration, lr_mult, decay_mult, trained });
        Ok(id)
    }
}

fn check_size(what: impl Display, shape: &TensorType) -> Result<(), String> {
    let message = || format!("{what} would have the extents {shape:?}, more than any memory holds");
    elements(shape.dims()).map(drop).ok_or_else(message)
}
