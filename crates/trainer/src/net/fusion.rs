//! Layers that run inside others, which saves passes over memory.

use super::graph::{Graph, Node};
use crate::{
    layers::{Absorbed, Need},
    spec::{EltwiseOperation, EltwiseParams, LayerKind, LayerSpec, NetSpec, PoolingMethod},
};
use std::collections::HashMap;

/// `spec`, whose layers read no blob twice, with the same results: a sum of two that alone reads one of them becomes part
/// of the batch normalisation that this is, in the sum's place. The blobs in between are no more: returns their names,
/// too.
pub(super) fn join(mut spec: NetSpec) -> (NetSpec, Vec<String>) {
    let (mut gone, uses) = (Vec::new(), uses(&spec.layers));
    for index in (0..spec.layers.len()).rev() {
        if let Some(norm) = norm_of_sum(&spec.layers, &uses, index) {
            let sum = &spec.layers[index];
            let mut joined = spec.layers[norm].clone();
            joined.bottoms.extend(sum.bottoms.iter().filter(|&blob| *blob != joined.tops[0]).cloned());
            joined.tops.clone_from(&sum.tops);
            if !joined.propagate_down.is_empty() {
                joined.propagate_down.push(true);
            }
            spec.layers[index] = joined;
            spec.layers[norm].bottoms.clear();
            gone.append(&mut spec.layers[norm].tops);
        }
    }
    spec.layers.retain(|layer| !(layer.tops.is_empty() && matches!(layer.kind, LayerKind::BatchNorm(_))));
    (spec, gone)
}

/// How often a blob is read and written, and the number of its first writer.
#[derive(Default)]
struct Uses {
    read: usize,
    written: usize,
    writer: usize,
}

fn uses(layers: &[LayerSpec]) -> HashMap<String, Uses> {
    let mut uses: HashMap<String, Uses> = HashMap::new();
    for (index, layer) in layers.iter().enumerate() {
        for blob in &layer.bottoms {
            uses.entry(blob.clone()).or_default().read += 1;
        }
        for blob in &layer.tops {
            let of_blob =
                uses.entry(blob.clone()).or_insert_with(|| Uses { writer: index, ..Uses::default() });
            of_blob.written += 1;
        }
    }
    uses
}

/// The last batch normalisation that only the sum number `index` reads, if that is a plain sum of two.
fn norm_of_sum(layers: &[LayerSpec], uses: &HashMap<String, Uses>, index: usize) -> Option<usize> {
    let sum = &layers[index];
    let LayerKind::Eltwise(EltwiseParams { operation: EltwiseOperation::Sum { coefficients } }) = &sum.kind
    else {
        return None;
    };
    let is_plain = coefficients.iter().all(|&coefficient| coefficient == 1.0) && is_free(sum);
    if !is_plain || sum.bottoms.len() != 2 {
        return None;
    }
    let norms = sum.bottoms.iter().map(|blob| &uses[blob]).filter(|blob| (blob.read, blob.written) == (1, 1));
    let is_norm = |norm: &usize| {
        let LayerSpec { kind: LayerKind::BatchNorm(_), bottoms, .. } = &layers[*norm] else { return false };
        // Whoever writes its bottom once more could do so before the sum; and a layer reads no blob twice.
        bottoms.len() == 1 && uses[&bottoms[0]].written == 1 && !sum.bottoms.contains(&bottoms[0])
    };
    norms.map(|blob| blob.writer).filter(is_norm).max()
}

/// Whether gradients go through it as if nothing were said of them, and it has no part in the objective.
fn is_free(layer: &LayerSpec) -> bool {
    layer.propagate_down.is_empty() && layer.loss_weights.is_empty()
}

/// Leaves to a maximum pooling, while `training`, what commutes with it and is less work behind it: a ReLU in place that
/// only it reads, and the bias of a convolution. (Rounding a sum changes no order: the maximum is the same.) Other biases
/// are left to a ReLU in place behind them. So a bias is no pass of its own, and neither is the sum of its gradient, or
/// one over the pooled. Returns the names of blobs that are without one of these.
pub(super) fn leave_to_next(graph: &mut Graph, training: bool) -> Vec<String> {
    let mut gone = Vec::new();
    for index in (0..graph.nodes.len()).rev() {
        let kind = &graph.nodes[index].kind;
        let pools =
            training && matches!(kind, LayerKind::Pooling(params) if params.method == PoolingMethod::Max);
        let mut before = only_before(graph, index).filter(|_| pools || is_relu(&graph.nodes[index]));
        let relu = before.filter(|&before| pools && is_relu(&graph.nodes[before]));
        if let Some(relu) = relu {
            graph.nodes[relu].absorbed = Absorbed::Both;
            graph.nodes[relu].declaration.needs_top = Need::Nothing;
            graph.nodes[index].rectify = true;
            before = only_before(graph, relu);
        }
        let bias = before.and_then(|before| take_bias(graph, before, index));
        if pools && (relu, bias) != (None, None) {
            gone.push(graph.values[graph.nodes[index].bottoms[0]].name.clone());
        }
        if pools && bias.is_some() {
            // Where a ReLU makes 0 of the maximum, the bias has no gradient.
            let declared = &mut graph.nodes[index].declaration;
            declared.absorbs = Absorbed::BothBySign;
            declared.needs_top = if relu.is_some() { Need::Sign } else { Need::Nothing };
        }
    }
    gone
}

/// What writes the first bottom of node `index`, if that alone reads it.
fn only_before(graph: &Graph, index: usize) -> Option<usize> {
    let value = &graph.values[*graph.nodes[index].bottoms.first()?];
    (value.consumers.len() == 1).then_some(value.producer)
}

fn is_relu(node: &Node) -> bool {
    node.in_place && node.declaration.rectifies
}

/// Has node `to` add the bias of node `from`, if it has one for each channel of its top. That of a shared bias is left
/// where it is: its gradients arrive in the order of its layers.
fn take_bias(graph: &mut Graph, from: usize, to: usize) -> Option<usize> {
    let (node, top) = (&graph.nodes[from], &graph.values[graph.nodes[to].bottoms[0]].shape);
    let is_conv = matches!(node.kind, LayerKind::Convolution(_));
    let is_by_channel = is_conv || matches!(node.kind, LayerKind::InnerProduct(_)) && top.rank() == 2;
    let &[_, bias] = &node.used_params[..] else { return None };
    let users = graph.nodes.iter().filter(|node| node.used_params.contains(&bias)).count();
    if !is_by_channel || users > 1 || node.backward != graph.nodes[to].backward {
        return None;
    }
    let accumulate = graph.nodes[from].param_accumulate.pop();
    graph.nodes[from].used_params.pop();
    graph.nodes[to].param_accumulate.extend(accumulate);
    graph.nodes[to].used_params.push(bias);
    Some(bias)
}

/// Lets every layer absorb the ReLU that follows it in place, as far as it can.
///
/// An in-place ReLU is its input's only reader, so fusing it changes no observable value. A ReLU
/// whose backward pass is absorbed need not see its top again.
pub(super) fn absorb_relus(graph: &mut Graph) {
    for index in 0..graph.nodes.len() {
        let node = &graph.nodes[index];
        if !is_relu(node) || node.absorbed != Absorbed::No {
            continue;
        }
        let before = graph.values[node.bottoms[0]].producer;
        let absorbed = graph.nodes[before].declaration.absorbs;
        graph.nodes[before].rectify = absorbed != Absorbed::No;
        graph.nodes[index].absorbed = absorbed;
        if absorbed.is_backward() {
            let need = std::mem::replace(&mut graph.nodes[index].declaration.needs_top, Need::Nothing);
            if absorbed == Absorbed::BothBySign {
                graph.nodes[before].declaration.needs_top = need;
            }
        }
    }
}
