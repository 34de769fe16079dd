//! Nets for other programs: state dicts of PyTorch, and ONNX.

mod onnx;
#[cfg(test)]
mod tests;

pub use onnx::onnx;

use crate::net::graph::{Graph, Node};
use crate::snapshot::NamedTensor;
use crate::snapshot::modules::{blue_first, fields, is_chain, is_measure, modules, turn};
use crate::{Net, NetError, Result, spec::LayerKind};

/// The state dict of PyTorch for `net` with these `values`, one list for each parameter, as
/// [`Weights::values`](crate::snapshot::Weights::values) has them. Modules are named as
/// [`Weights`](crate::snapshot::Weights) reads them: in a chain by their places, as torchvision's AlexNet and VGG, else
/// as the layers. Running statistics are means; batches are not counted, which PyTorch does not miss.
///
/// # Errors
/// A layer whose weights no module of PyTorch keeps in this form, or that sees colours in another order than PyTorch's.
pub fn state_dict<'v>(net: &Net, values: &'v [Vec<f32>]) -> Result<Vec<NamedTensor<'v>>> {
    let (graph, mut tensors) = (net.graph(), Vec::new());
    let chain = is_chain(graph);
    for ((node, module), turns) in graph.nodes.iter().zip(modules(graph)).zip(blue_first(graph)) {
        let turns = turns?;
        let names = fields(node, if chain { &module.place } else { &module.own });
        if names.len() < node.params.len() {
            let message =
                format!("this form of {} has no counterpart in PyTorch", node.spec.kind.type_name());
            return Err(NetError::layer(&node.spec, message));
        }
        let statistics = running_means(node, values);
        for (blob, (&param, name)) in node.params.iter().zip(names).enumerate() {
            let Some(name) = name else { continue };
            let mut shape = graph.params[param].declaration.shape.dims().to_vec();
            if shape.is_empty() {
                shape.push(1); // the one slope of a PReLU is a vector there
            }
            let values = match &statistics {
                Some(statistics) if blob < 2 => statistics[blob].clone().into(),
                _ if blob == 0 && turns => {
                    bytemuck::pod_collect_to_vec(&turn(bytemuck::cast_slice(&values[param]), &shape)).into()
                }
                _ => (&values[param]).into(),
            };
            tensors.push((name, shape, values));
        }
    }
    Ok(tensors)
}

/// The mean and the variance that the sums of a batch norm stand for.
fn running_means(node: &Node, values: &[Vec<f32>]) -> Option<[Vec<f32>; 2]> {
    let (LayerKind::BatchNorm(_), [mean, variance, factor, ..]) = (&node.spec.kind, &node.params[..]) else {
        return None;
    };
    let factor = values[*factor][0];
    // One that was never trained has mean and variance 0, as it has when it runs.
    let scale = if factor == 0.0 { 0.0 } else { 1.0 / factor };
    Some([mean, variance].map(|&sums| values[sums].iter().map(|sum| sum * scale).collect()))
}

/// Whether a layer leaves a blob as it is, in a test.
fn is_copy(node: &Node) -> bool {
    matches!(node.spec.kind, LayerKind::Dropout(_) | LayerKind::Split | LayerKind::Objective)
}

/// The values that go in, tops of the layers that bring data, as far as others than losses read them; and those that
/// come out, tops that nothing but losses reads.
fn ends(graph: &Graph) -> [Vec<usize>; 2] {
    let is_read =
        |value: usize| graph.values[value].consumers.iter().any(|&node| !is_measure(&graph.nodes[node]));
    let [mut inputs, mut outputs] = [Vec::new(), Vec::new()];
    for node in graph.nodes.iter().filter(|node| !is_measure(node)) {
        let is_source = node.bottoms.is_empty();
        let ends = if is_source { &mut inputs } else { &mut outputs };
        ends.extend(node.tops.iter().copied().filter(|&top| is_read(top) == is_source));
    }
    [inputs, outputs]
}
