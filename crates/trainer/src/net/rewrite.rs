//! Layers that run inside their neighbours, which saves passes over memory.

use super::graph::{Graph, Node};
use crate::layers::{Absorbed, Need};
use crate::spec::{
    Combination, EltwiseParams, LayerKind, LayerSpec, NetSpec, Phase, PoolingMethod, PoolingParams,
};
use cudnn_layers::batch_norm;
use tensor::AxisOrder;

/// `spec` with the same results. A sum of two that alone reads one of them becomes part of the batch normalisation that
/// this is, in the sum's place; and so does, in NHWC, a maximum pooling, in the normalisation's place, where a ReLU between
/// them comes behind. The blobs in between are no more: returns their names, too.
pub(super) fn join(mut spec: NetSpec, order: AxisOrder) -> (NetSpec, Vec<String>) {
    let mut gone = Vec::new();
    for index in (0..spec.layers.len()).rev() {
        if let Some(norm) = norm_of_sum(&spec.layers, index) {
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
    let pools = order == AxisOrder::Nhwc && spec.state.phase == Phase::Train;
    for index in (0..spec.layers.len()).filter(|_| pools) {
        let LayerKind::Pooling(pooling) = spec.layers[index].kind.clone() else { continue };
        if let Some((norm, relu)) = norm_of_pooling(&spec.layers, index, &pooling) {
            let tops = std::mem::take(&mut spec.layers[index].tops);
            spec.layers[norm].pool = Some(pooling);
            if let Some(relu) = relu {
                (spec.layers[relu].bottoms, spec.layers[relu].tops) = (tops.clone(), tops.clone());
            }
            gone.extend(std::mem::replace(&mut spec.layers[norm].tops, tops));
        }
    }
    let is_joined = |kind: &LayerKind| matches!(kind, LayerKind::BatchNorm(_) | LayerKind::Pooling(_));
    spec.layers.retain(|layer| !(layer.tops.is_empty() && is_joined(&layer.kind)));
    (spec, gone)
}

/// The layers that read or write `blob`, in order.
fn users(layers: &[LayerSpec], blob: &String) -> Vec<usize> {
    let uses = |layer: &LayerSpec| layer.bottoms.contains(blob) || layer.tops.contains(blob);
    (0..layers.len()).filter(|&user| uses(&layers[user])).collect()
}

/// Whether no top of a layer is a part of the objective.
fn has_no_weight(layer: &LayerSpec) -> bool {
    layer.loss_weights.iter().all(|&weight| weight == 0.0)
}

/// The last batch normalisation that only the sum number `index` reads, if that is a plain sum of two.
fn norm_of_sum(layers: &[LayerSpec], index: usize) -> Option<usize> {
    let sum = &layers[index];
    let LayerKind::Eltwise(EltwiseParams { operation: Combination::Sum(coefficients) }) = &sum.kind else {
        return None;
    };
    let is_of_ones = coefficients.iter().all(|&coefficient| coefficient == 1.0);
    // Gradients go through it as if nothing were said of them, and it has no part in the objective.
    let is_of_two = sum.bottoms.len() == 2 && sum.bottoms[0] != sum.bottoms[1];
    if !(is_of_ones && is_of_two && sum.propagate_down.is_empty() && has_no_weight(sum)) {
        return None;
    }
    let norms = sum.bottoms.iter().filter_map(|blob| match users(layers, blob)[..] {
        [norm, last] if last == index && !sum.tops.contains(blob) => Some(norm),
        _ => None,
    });
    let is_norm = |norm: &usize| {
        let LayerSpec { kind: LayerKind::BatchNorm(_), bottoms, .. } = &layers[*norm] else { return false };
        // Whoever writes its bottom once more could do so before the sum; and a layer reads no blob twice.
        let [bottom] = &bottoms[..] else { return false };
        // Shared parameters are those of the first layer that has them, which in its new place might be another.
        let is_shared = layers[*norm].params.iter().any(|param| param.name.is_some());
        layers.iter().filter(|layer| layer.tops.contains(bottom)).count() == 1
            && !sum.bottoms.contains(bottom)
            && !is_shared
            && has_no_weight(&layers[*norm])
    };
    norms.filter(is_norm).max()
}

/// The batch normalisation, without a sum, that only the pooling number `index` reads, and a ReLU in place between them.
fn norm_of_pooling(
    layers: &[LayerSpec],
    index: usize,
    pooling: &PoolingParams,
) -> Option<(usize, Option<usize>)> {
    let (norm, relu) = match users(layers, &layers[index].bottoms[0])[..] {
        [norm, last] if last == index => (norm, None),
        [norm, relu, last] if last == index => (norm, Some(relu)),
        _ => return None,
    };
    // Gradients go through all as if nothing were said of them.
    let is_plain = |layer: usize| layers[layer].propagate_down.is_empty() && has_no_weight(&layers[layer]);
    let is_relu = |relu: usize| {
        rectifies(&layers[relu].kind) && is_plain(relu) && layers[relu].tops == layers[relu].bottoms
    };
    let is_norm = matches!(&layers[norm].kind, LayerKind::BatchNorm(norm) if norm.use_global_stats != Some(true))
        && layers[norm].bottoms.len() == 1
        && has_no_weight(&layers[norm]);
    let pools = pooling.method == PoolingMethod::Max
        && pooling.window.is_some_and(|window| batch_norm::can_pool(window, pooling.stride));
    (is_norm && relu.is_none_or(is_relu) && pools && is_plain(index)).then_some((norm, relu))
}

/// Lets layers do what ReLUs in place and biases do before or behind them, in the same pass over memory:
/// * a maximum pooling, while `training`, the ReLU and the bias of the convolution before it, which commute with it (the
///   order of sums is that of their roundings) and are less work behind it; the blob is without them: returns its name,
/// * whatever layer can, as far as it can, the ReLU that follows; one whose backward pass is absorbed need not see its top
///   again,
/// * a ReLU the bias of a convolution or an inner product before it.
pub(super) fn absorb(graph: &mut Graph, training: bool) -> Vec<String> {
    let mut gone = Vec::new();
    for index in (0..graph.nodes.len()).rev() {
        let node = &graph.nodes[index];
        let pools =
            training && matches!(&node.spec.kind, LayerKind::Pooling(p) if p.method == PoolingMethod::Max);
        if !(pools || is_relu(node) && node.absorbed == Absorbed::No) {
            continue;
        }
        let blob = &graph.values[node.bottoms[0]];
        let (mut before, is_alone, name) = (blob.producer, blob.consumers.len() == 1, blob.name.clone());
        let relu = &graph.nodes[before];
        let takes_relu = pools && is_alone && is_relu(relu);
        if takes_relu {
            let below = graph.values[relu.bottoms[0]].producer;
            take_relu(graph, before, index, Absorbed::Both);
            before = below;
        } else if !pools {
            take_relu(graph, index, before, relu.declaration.absorbs);
        }
        if (is_alone && take_bias(graph, before, index) || takes_relu) && pools {
            gone.push(name);
        }
    }
    gone
}

fn is_relu(node: &Node) -> bool {
    node.in_place && rectifies(&node.spec.kind)
}

/// Whether layers of this kind do what others can take over.
fn rectifies(kind: &LayerKind) -> bool {
    matches!(kind, LayerKind::ReLU(relu) if relu.negative_slope == 0.0)
}

/// Has node `to` do so much of node `relu`.
fn take_relu(graph: &mut Graph, relu: usize, to: usize, absorbed: Absorbed) {
    graph.nodes[to].rectify = absorbed != Absorbed::No;
    graph.nodes[relu].absorbed = absorbed;
    if absorbed.is_backward() {
        let need = std::mem::take(&mut graph.nodes[relu].declaration.needs_top);
        if absorbed == Absorbed::BothBySign {
            graph.nodes[to].declaration.needs_top = need;
        }
    }
}

/// Has node `to` add the bias of node `from`, if that has one for each channel. A shared one's gradients have to come in
/// the order of its layers.
fn take_bias(graph: &mut Graph, from: usize, to: usize) -> bool {
    let [node, next] = [from, to].map(|node| &graph.nodes[node]);
    let is_by_channel = match node.spec.kind {
        LayerKind::InnerProduct(_) => graph.values[node.tops[0]].shape.rank() == 2,
        _ => matches!(node.spec.kind, LayerKind::Convolution(_)),
    };
    let &[_, bias] = &node.used_params[..] else { return false };
    let users = graph.nodes.iter().filter(|node| node.used_params.contains(&bias)).count();
    if !is_by_channel || users > 1 || node.backward != next.backward {
        return false;
    }
    graph.nodes[from].used_params.pop();
    let accumulate = graph.nodes[from].param_accumulate.pop();
    let next = &mut graph.nodes[to];
    next.used_params.push(bias);
    next.param_accumulate.extend(accumulate);
    if next.rectify {
        next.declaration.needs_top = Need::Sign; // what the ReLU makes 0 has no part in the gradient
    }
    true
}
