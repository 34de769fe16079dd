//! Layers that run inside others, which saves passes over memory.

use super::graph::Graph;
use crate::{
    layers::{Absorbed, Need},
    spec::{EltwiseOperation, EltwiseParams, LayerKind, LayerSpec, NetSpec, PoolingMethod},
};

/// `spec`, whose layers read no blob twice, with other layers for some blobs that only one layer reads, and the same results:
/// a sum of two becomes part of the batch normalisation of which one is, in the sum's place; and a ReLU in place before a
/// maximum pooling, with which it commutes, goes behind it. The blobs in between are no more, or are others: returns their
/// names, too.
pub(super) fn join(mut spec: NetSpec) -> (NetSpec, Vec<String>) {
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
        } else if let Some(pool) = pool_behind(&spec.layers, index) {
            let mut relu = spec.layers.remove(index);
            gone.append(&mut relu.bottoms);
            relu.bottoms.clone_from(&spec.layers[pool - 1].tops);
            relu.tops.clone_from(&relu.bottoms);
            spec.layers.insert(pool, relu);
        }
    }
    spec.layers.retain(|layer| !(layer.tops.is_empty() && matches!(layer.kind, LayerKind::BatchNorm(_))));
    (spec, gone)
}

/// The last batch normalisation that only the sum number `index` reads, if that is a plain sum of two.
fn norm_of_sum(layers: &[LayerSpec], index: usize) -> Option<usize> {
    let sum = &layers[index];
    let LayerKind::Eltwise(EltwiseParams { operation: EltwiseOperation::Sum { coefficients } }) = &sum.kind
    else {
        return None;
    };
    let is_plain = coefficients.iter().all(|&coefficient| coefficient == 1.0) && is_free(sum);
    (0..index).rev().find(|&norm| {
        let LayerSpec { kind: LayerKind::BatchNorm(_), bottoms, tops, .. } = &layers[norm] else {
            return false;
        };
        // Whoever writes its bottom once more could do so before the sum; and a layer reads no blob twice.
        is_plain
            && sum.bottoms.len() == 2
            && tops.first().is_some_and(|top| sum.bottoms.contains(top) && mentions(layers, top) == [1, 1])
            && bottoms.len() == 1
            && !sum.bottoms.contains(&bottoms[0])
            && mentions(layers, &bottoms[0])[1] == 1
    })
}

/// The maximum pooling that alone reads the blob of the ReLU in place number `index`.
fn pool_behind(layers: &[LayerSpec], index: usize) -> Option<usize> {
    let relu = &layers[index];
    let LayerKind::ReLU(params) = &relu.kind else { return None };
    let is_plain = params.negative_slope == 0.0 && relu.bottoms == relu.tops && is_free(relu);
    if !is_plain || mentions(layers, &relu.tops[0]) != [2, 2] {
        return None;
    }
    (index + 1..layers.len()).find(|&pool| {
        let LayerKind::Pooling(params) = &layers[pool].kind else { return false };
        params.method == PoolingMethod::Max && layers[pool].bottoms == relu.tops && is_free(&layers[pool])
    })
}

/// Whether gradients go through it as if nothing were said of them, and it has no part in the objective.
fn is_free(layer: &LayerSpec) -> bool {
    layer.propagate_down.is_empty() && layer.loss_weights.is_empty()
}

/// How often a blob is read and written.
fn mentions(layers: &[LayerSpec], blob: &str) -> [usize; 2] {
    let count = |blobs: &Vec<String>| blobs.iter().filter(|other| *other == blob).count();
    [
        layers.iter().map(|layer| count(&layer.bottoms)).sum(),
        layers.iter().map(|layer| count(&layer.tops)).sum(),
    ]
}

/// Lets every layer absorb the ReLU that follows it in place, as far as it can.
///
/// An in-place ReLU is its input's only reader, so fusing it changes no observable value. A ReLU
/// whose backward pass is absorbed need not see its top again.
pub(super) fn absorb_relus(graph: &mut Graph) {
    for index in 0..graph.nodes.len() {
        let node = &graph.nodes[index];
        if !node.in_place || !node.declaration.rectifies {
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
