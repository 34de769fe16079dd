//! A net: its graph, its layers, and the execution of its schedule over an arena.

pub mod graph;
pub mod layout;
mod rewrite;
pub mod run;
mod summary;
#[cfg(test)]
pub(crate) mod tests;

use crate::data::Loader;
use crate::error::{NetError, Result};
use crate::layers::{BuildOptions, Layer, Need};
use crate::spec::{LayerKind, NetSpec, Phase};
use cudnn_layers::{conv::ConvOp, update::Method};
use graph::{Graph, Node, Param, Value, ValueId};
use memory::{Outline, OutlineNode, OutlineParam, OutlineValue};
use planner::{Bytes, Kernel, Plan, WorkspacePolicy};
use std::{collections::HashMap, fmt::Display};
use tensor::{Device, Mark, Space, TensorType};

pub use layout::{NetLayout, RunLayout};

/// A net in one phase, before and after its convolutions are planned. It owns no memory for blobs: see [`RunLayout`].
pub struct Net {
    name: String,
    phase: Phase,
    graph: Graph,
    layers: Vec<Box<dyn Layer>>,
    /// For each node, whether its constant tops are filled: not yet in a new arena.
    pub(crate) filled: Vec<bool>,
    device: Device,
    /// Whether the workspace of every kernel is its alone: under WD.
    is_divided: bool,
    training: bool,
    /// The solver's method; SGD if nobody names one.
    pub(crate) method: Method,
    /// Whether gradients are kept beyond their update: something adds to them, or they are needed all at once.
    pub(crate) keeps_gradients: bool,
    /// Values that are read after an iteration, besides its outputs.
    kept: Vec<ValueId>,
    /// Blobs of the file that training does without.
    gone: Vec<String>,
}

/// Refuses data with a label that is no class of a loss or an accuracy which reads it: not hours later, in its turn.
fn check_labels(graph: &Graph, layers: &[Box<dyn Layer>]) -> Result<()> {
    let Graph { nodes, values, .. } = graph;
    for node in nodes {
        let (axis, ignored) = match &node.spec.kind {
            LayerKind::SoftmaxWithLoss(params) => (params.axis, params.ignore_label),
            LayerKind::Accuracy(params) => (params.axis, params.ignore_label),
            _ => continue,
        };
        let producer = |value: ValueId| values[value].producer;
        let mut source = producer(node.bottoms[1]);
        while let LayerKind::Split | LayerKind::Flatten(_) | LayerKind::Reshape(_) = nodes[source].spec.kind {
            source = producer(nodes[source].bottoms[0]);
        }
        let set = layers[source].data().map(Loader::dataset);
        let scores = &values[node.bottoms[0]].shape;
        let (Some(set), Some(axis)) = (set, scores.axis(i64::from(axis))) else { continue };
        set.check_labels(scores.dims()[axis], ignored).map_err(|error| NetError::layer(&node.spec, error))?;
    }
    Ok(())
}

impl Net {
    /// Builds the layers of `spec` (already reduced to one phase) and connects them.
    ///
    /// `training` says whether gradients will be computed.
    ///
    /// # Errors
    /// [`NetError`]: a layer that does not fit, or data that cannot be opened.
    pub fn new(spec: &NetSpec, options: &BuildOptions, training: bool) -> Result<Self> {
        let (file, phase) = (spec.file.display(), spec.state.phase);
        let nothing = || NetError::Refused(format!("{file}: none of its layers is of the phase {phase}"));
        spec.layers.first().ok_or_else(nothing)?;
        let (spec, order) = (spec.clone(), options.device.format().layout);
        let (spec, mut gone) = if training { rewrite::join(spec, order) } else { (spec, Vec::new()) };
        let (mut graph, layers) = Graph::build(&spec, options, training)?;
        check_labels(&graph, &layers)?;
        gone.append(&mut rewrite::absorb(&mut graph, training));
        Ok(Self {
            name: spec.name.clone(),
            phase: spec.state.phase,
            graph,
            filled: vec![false; layers.len()],
            layers,
            device: options.device.clone(),
            is_divided: false,
            training,
            method: Method::default(),
            keeps_gradients: spec.share.ranks > 1,
            kept: Vec::new(),
            gone,
        })
    }

    /// Calls its parameters as `trained` calls those of the same layers, whichever layer has a shared one first here.
    pub(crate) fn name_as(&mut self, trained: &Net) {
        let nodes = trained.graph.nodes.iter().map(|node| (&node.spec.name, node));
        let nodes: HashMap<&String, &Node> = nodes.collect();
        for node in &self.graph.nodes {
            let others = nodes.get(&node.spec.name).map_or(&[][..], |other| &other.params);
            for (&param, &other) in node.params.iter().zip(others) {
                self.graph.params[param].name.clone_from(&trained.graph.params[other].name);
            }
        }
    }

    /// Whether an output has a weight in the objective.
    pub fn has_loss(&self) -> bool {
        self.losses().next().is_some()
    }

    /// An error of this net.
    pub(crate) fn error(&self, message: impl Display) -> NetError {
        NetError::Refused(format!("net '{}': {message}", self.name))
    }

    /// The net's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Its graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The device it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether gradients are computed.
    pub fn is_training(&self) -> bool {
        self.training
    }

    /// The layers that read a data set, by name; those of synthetic data that are made once are none.
    pub fn loaders(&self) -> impl Iterator<Item = (&str, &Loader)> {
        let layers = self.graph.nodes.iter().zip(&self.layers);
        layers.filter_map(|(node, layer)| Some((node.spec.name.as_str(), layer.data()?)))
    }

    /// Continues reading the data of layer `name` at `position`.
    pub fn set_position(&mut self, name: &str, position: u64) {
        for (node, layer) in self.graph.nodes.iter().zip(&mut self.layers) {
            if let (true, Some(data)) = (node.spec.name == name, layer.data_mut()) {
                data.set_position(position);
            }
        }
    }

    /// Has the values of the blob of this name stay where they are to the end of an iteration, for
    /// [`Execution::blob`](crate::Execution::blob), and says its shape. To be asked for before the net is laid out.
    ///
    /// # Errors
    /// There is no blob of this name, or training does without it: a sum, a ReLU or a bias is part of another layer.
    pub fn keep_blob(&mut self, name: &str) -> Result<&TensorType> {
        if self.gone.iter().any(|gone| gone == name) {
            let message = "is not computed in training, where it is an inner part of a layer";
            return Err(self.error(format!("blob '{name}' {message}")));
        }
        let value = self.blob(name)?;
        self.kept.push(value);
        Ok(&self.graph.values[value].shape)
    }

    /// What the blob of this name is at the end.
    pub(crate) fn blob(&self, name: &str) -> Result<ValueId> {
        let unknown = || self.error(format!("there is no blob '{name}'"));
        self.graph.values.iter().rposition(|value| value.name == name).ok_or_else(unknown)
    }

    /// The convolution kernels that an iteration runs, layer by layer.
    pub fn kernels(&mut self) -> Vec<Kernel> {
        let mut kernels = Vec::new();
        for (node, layer) in self.graph.nodes.iter().zip(&mut self.layers) {
            if let Some(planned) = layer.convolution() {
                let ops = ConvOp::ALL.into_iter().filter(|&op| runs(&self.graph.params, node, op));
                kernels.extend(ops.map(|op| planned.kernel(&self.device, &node.spec.name, op)));
            }
        }
        kernels
    }

    /// Fixes the configuration of every kernel, and the scratch of its step: the workspaces of its kernels, side by side
    /// under WD; otherwise they share it, one after the other. Unless it is `to_run`, the plan may be of another machine's
    /// device: kernels get their workspaces, but cannot run.
    ///
    /// # Errors
    /// A plan that lacks a kernel, or was made for another net or device.
    pub fn install(&mut self, plan: &Plan, to_run: bool) -> Result<()> {
        let passes = [&[ConvOp::Forward][..], &[ConvOp::BackwardData, ConvOp::BackwardFilter]];
        self.is_divided = plan.options.workspace_policy == WorkspacePolicy::Wd;
        let Graph { nodes, params, .. } = &mut self.graph;
        for (node, layer) in nodes.iter_mut().zip(&mut self.layers) {
            let (name, Some(planned)) = (&node.spec.name, layer.convolution()) else { continue };
            for (pass, ops) in passes.into_iter().enumerate() {
                let mut end = Bytes::ZERO;
                for &op in ops.iter().filter(|&&op| runs(params, node, op)) {
                    let lacking =
                        || NetError::Refused(format!("net '{}': the plan lacks {name} {op}", self.name));
                    let kernel = plan.kernel(name, op).ok_or_else(lacking)?;
                    let start = if self.is_divided { end.aligned() } else { Bytes::ZERO };
                    let workspace = match to_run {
                        true => planned.install(&self.device, op, &kernel.configuration, start.0 as usize),
                        false => Ok(Space::aligned(kernel.workspace.0 as usize)),
                    };
                    let workspace = workspace.map_err(|error| NetError::run(name, error))?;
                    end = end.max(start + bytes(workspace));
                }
                node.declaration.scratch[pass] = Space::aligned(end.0 as usize);
            }
        }
        Ok(())
    }

    /// When each kernel last began and ended, of those that were timed since this was last asked: node, operation, marks.
    pub fn take_kernel_marks(&mut self) -> Vec<(usize, ConvOp, [Mark; 2])> {
        let mut marks = Vec::new();
        for (node, layer) in self.layers.iter_mut().enumerate() {
            if let Some(planned) = layer.convolution() {
                let of = |op| Some((node, op, planned.take_marks(op)?));
                marks.extend(ConvOp::ALL.into_iter().filter_map(of));
            }
        }
        marks
    }

    /// What the memory of an iteration depends on; with an update and its history if the net trains with `updates`.
    pub fn outline(&self, updates: bool) -> Outline {
        let Graph { nodes, values, params } = &self.graph;
        let node = |node: &Node| OutlineNode {
            name: node.spec.name.clone(),
            bottoms: node.bottoms.clone(),
            tops: node.tops.clone(),
            propagates: node.propagates.iter().map(Option::is_some).collect(),
            backward: node.backward,
            read_bottoms: node.declaration.read_bottoms,
            needs_top: node.declaration.needs_top != Need::Nothing,
            gradients: if node.backward { node.used_params.clone() } else { Vec::new() },
            saved: bytes(node.declaration.saved),
            repeats_from_saved: node.declaration.repeats_from_saved,
            scratch: node.declaration.scratch.map(bytes),
            keeps_scratch: self.is_divided && matches!(node.spec.kind, LayerKind::Convolution(_)),
        };
        let value = |(id, value): (usize, &Value)| {
            let declaration = &nodes[value.producer].declaration;
            OutlineValue {
                bytes: bytes(value.shape.space()),
                producer: value.producer,
                root: value.root,
                needs_diff: value.needs_diff,
                constant: declaration.constant,
                output: value.consumers.is_empty()
                    || !declaration.loss_weights.is_empty()
                    || self.kept.contains(&id),
            }
        };
        let param = |param: &Param| {
            let [own, all] = [param.master().space(), param.space()].map(bytes);
            OutlineParam {
                name: param.name.clone(),
                bytes: own,
                copy: Bytes(all.0 - own.0),
                trained: self.training && param.trained,
                history: Bytes(self.method.histories() as u64 * own.0),
            }
        };
        // What no loss reaches is updated, too: its gradient is 0, and its weights decay.
        let is_reached = |id: usize| nodes.iter().any(|node| node.backward && node.used_params.contains(&id));
        let is_idle = |(id, param): (usize, &Param)| param.trained && !is_reached(id);
        Outline {
            nodes: nodes.iter().map(node).collect(),
            values: values.iter().enumerate().map(value).collect(),
            params: params.iter().map(param).collect(),
            updates: updates && self.training,
            keeps_gradients: self.keeps_gradients || !updates || params.iter().enumerate().any(is_idle),
            staged: self.loaders().map(|(_, loader)| Bytes(loader.staged_bytes())).sum(),
            host: Bytes(self.loaders().map(|(_, loader)| loader.host_bytes()).sum()),
        }
    }

    /// The loss layers' tops, and every other top that no layer reads: the outputs of the net, each with its weight in the
    /// objective, 0 for what is not a loss.
    pub fn outputs(&self) -> impl Iterator<Item = (ValueId, f32)> {
        self.graph.nodes.iter().flat_map(move |node| {
            node.tops.iter().enumerate().filter_map(move |(top, &id)| {
                let loss_weight = node.declaration.loss_weights.get(top).copied().unwrap_or(0.0);
                let is_read = !self.graph.values[id].consumers.is_empty();
                (loss_weight != 0.0 || !is_read).then_some((id, loss_weight))
            })
        })
    }

    /// Those that have a weight in the objective.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (ValueId, f32)> {
        self.outputs().filter(|&(_, weight)| weight != 0.0)
    }
}

fn bytes(space: Space) -> Bytes {
    Bytes(space.bytes() as u64)
}

/// Whether an iteration runs the kernel of `op` of a convolution.
fn runs(params: &[Param], node: &Node, op: ConvOp) -> bool {
    match op {
        ConvOp::Forward => true,
        ConvOp::BackwardData => node.propagates[0].is_some(),
        ConvOp::BackwardFilter => node.backward && params[node.params[0]].trained,
    }
}
