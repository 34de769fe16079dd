//! Layers that run inside others, which saves passes over memory.

use super::graph::Graph;
use crate::{
    layers::{Absorbed, Need},
    spec::{EltwiseOperation, EltwiseParams, LayerKind, LayerSpec, NetSpec, PoolingMethod},
};
use std::collections::HashMap;

/// `spec`, whose layers read no blob twice, with other layers for some blobs that only one layer reads, and the same
/// results: a sum of two becomes part of the batch normalisation of which one is, in the sum's place; and a ReLU in
/// place before a maximum pooling, with which it commutes, goes behind it. The blobs in between are no more, or are
/// others: returns their names, too.
pub(super) fn join(mut spec: NetSpec) -> (NetSpec, Vec<String>) {
    let (mut gone, mut uses) = (Vec::new(), uses(&spec.layers));
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
        } else if let Some(pool) = pool_behind(&spec.layers, &uses, index) {
            let mut relu = spec.layers.remove(index);
            gone.append(&mut relu.bottoms);
            relu.bottoms.clone_from(&spec.layers[pool - 1].tops);
            relu.tops.clone_from(&relu.bottoms);
            spec.layers.insert(pool, relu);
            // The layers in between have moved up.
            for at in index..pool {
                for blob in spec.layers[at].bottoms.iter().chain(&spec.layers[at].tops) {
                    let of_blob = uses.get_mut(blob).expect("a blob of the net");
                    of_blob.writer -= usize::from(of_blob.writer == at + 1);
                    of_blob.reader -= usize::from(of_blob.reader == at + 1);
                }
            }
        }
    }
    spec.layers.retain(|layer| !(layer.tops.is_empty() && matches!(layer.kind, LayerKind::BatchNorm(_))));
    (spec, gone)
}

/// How often a blob is read and written, and the numbers of its first writer and of its last reader.
#[derive(Default)]
struct Uses {
    read: usize,
    written: usize,
    writer: usize,
    reader: usize,
}

fn uses(layers: &[LayerSpec]) -> HashMap<String, Uses> {
    let mut uses: HashMap<String, Uses> = HashMap::new();
    for (index, layer) in layers.iter().enumerate() {
        for blob in &layer.bottoms {
            let of_blob = uses.entry(blob.clone()).or_default();
            (of_blob.read, of_blob.reader) = (of_blob.read + 1, index);
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

/// The maximum pooling that alone reads the blob of the ReLU in place number `index`.
fn pool_behind(layers: &[LayerSpec], uses: &HashMap<String, Uses>, index: usize) -> Option<usize> {
    let relu = &layers[index];
    let LayerKind::ReLU(params) = &relu.kind else { return None };
    if params.negative_slope != 0.0 || relu.bottoms != relu.tops || !is_free(relu) {
        return None;
    }
    let Uses { read: 2, written: 2, reader: pool, .. } = uses[&relu.tops[0]] else { return None };
    let LayerKind::Pooling(params) = &layers[pool].kind else { return None };
    let is_max = params.method == PoolingMethod::Max && is_free(&layers[pool]);
    (is_max && pool > index && layers[pool].bottoms == relu.tops).then_some(pool)
}

/// Whether gradients go through it as if nothing were said of them, and it has no part in the objective.
fn is_free(layer: &LayerSpec) -> bool {
    layer.propagate_down.is_empty() && layer.loss_weights.is_empty()
}

/// Leaves the bias of a convolution or an inner product to the one layer that reads its top, if that is a ReLU in place
/// or, while `training`, a maximum pooling, after which there are fewer elements to add it to: there it is no pass of its
/// own, and its gradient needs none over a convolution's. The maximum of what is rounded after the addition is the same.
/// Returns the names of blobs that are without their bias.
pub(super) fn leave_biases(graph: &mut Graph, training: bool) -> Vec<String> {
    let mut gone = Vec::new();
    for index in 0..graph.nodes.len() {
        let node = &graph.nodes[index];
        let Some(value) = node.bottoms.first().map(|&bottom| &graph.values[bottom]) else { continue };
        let rectifies = node.in_place && node.declaration.rectifies;
        let pools = training && matches!(&node.kind, LayerKind::Pooling(p) if p.method == PoolingMethod::Max);
        let before = &graph.nodes[value.producer];
        let is_by_channel = match before.kind {
            LayerKind::Convolution(_) => true,
            LayerKind::InnerProduct(_) => value.shape.rank() == 2,
            _ => false,
        };
        let &[_, bias] = &before.used_params[..] else { continue };
        // The order in which the gradients of a shared one arrive is that of its layers.
        let is_shared = graph.nodes.iter().filter(|node| node.used_params.contains(&bias)).count() > 1;
        if !(rectifies || pools) || !is_by_channel || is_shared || value.consumers.len() > 1 {
            continue;
        }
        let (before, name) = (value.producer, value.name.clone());
        graph.nodes[before].used_params.pop();
        let accumulate = graph.nodes[before].param_accumulate.pop();
        let node = &mut graph.nodes[index];
        node.used_params.push(bias);
        node.param_accumulate.extend(accumulate);
        if pools {
            // Of a ReLU that it absorbs it has to see what that stops.
            node.declaration.absorbs = Absorbed::BothBySign;
            gone.push(name);
        }
    }
    gone
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
