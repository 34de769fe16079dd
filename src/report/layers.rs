//! Memory layer by layer.

use super::table::{Align, Table};
use planner::Bytes;
use serde::Serialize;
use tensor::TensorType;
use trainer::Net;

/// What one layer brings into the arena, before lifetimes let buffers share their places.
#[derive(Clone, Debug, Serialize)]
pub struct LayerMemory {
    /// The layer.
    pub name: String,
    /// Its type.
    pub type_name: &'static str,
    /// The shape of its first top.
    pub shape: String,
    /// Its tops' data; 0 in place.
    pub data_bytes: u64,
    /// Their gradients; 0 in place and where none is computed.
    pub diff_bytes: u64,
    /// Workspace and other scratch, the larger of the forward and the backward step.
    pub workspace_bytes: u64,
    /// Parameters and persistent state; a shared parameter counts where it first stands.
    pub weight_bytes: u64,
}

/// The memory of every layer of `net`, with the plan that is installed in it.
pub fn layer_memory(net: &Net) -> Vec<LayerMemory> {
    let graph = net.graph();
    let mut counted = vec![false; graph.params.len()];
    let mut layers = Vec::with_capacity(graph.nodes.len());
    for (node, scratch) in graph.nodes.iter().zip(net.scratch()) {
        let own =
            || node.tops.iter().filter(|&&top| graph.values[top].root == top).map(|&top| &graph.values[top]);
        let weights = node.params.iter().filter(|&&param| !std::mem::replace(&mut counted[param], true));
        layers.push(LayerMemory {
            name: node.name.clone(),
            type_name: node.type_name,
            shape: node.tops.first().map_or_else(String::new, |&top| graph.values[top].shape.to_string()),
            data_bytes: own().map(|value| bytes(&value.shape)).sum(),
            diff_bytes: own().filter(|value| value.needs_diff).map(|value| bytes(&value.shape)).sum(),
            workspace_bytes: scratch.map(|pass| pass.bytes().0).into_iter().max().unwrap_or(0),
            weight_bytes: weights.map(|&param| bytes(&graph.params[param].declaration.shape)).sum(),
        });
    }
    layers
}

/// All layers, one a line, and their sums.
pub fn layer_table(layers: &[LayerMemory]) -> Table {
    let words = ["layer", "type", "top"].map(|name| (name, Align::Left));
    let numbers = ["data", "diff", "workspace", "weights"].map(|name| (name, Align::Right));
    let mut table = Table::new(words.into_iter().chain(numbers));
    let size = |bytes: u64| if bytes == 0 { "-".to_owned() } else { Bytes(bytes).to_string() };
    for layer in layers {
        let LayerMemory { name, type_name, shape, data_bytes, diff_bytes, workspace_bytes, weight_bytes } =
            layer;
        let sizes = [data_bytes, diff_bytes, workspace_bytes, weight_bytes].map(|&bytes| size(bytes));
        table.row([name.clone(), (*type_name).to_owned(), shape.clone()].into_iter().chain(sizes));
    }
    let sum = |of: fn(&LayerMemory) -> u64| size(layers.iter().map(of).sum());
    let sums = [
        sum(|layer| layer.data_bytes),
        sum(|layer| layer.diff_bytes),
        size(layers.iter().map(|layer| layer.workspace_bytes).max().unwrap_or(0)),
        sum(|layer| layer.weight_bytes),
    ];
    table.row(["sum", "(of workspace: largest)", ""].map(str::to_owned).into_iter().chain(sums));
    table
}

fn bytes(tensor: &TensorType) -> u64 {
    tensor.space().bytes() as u64
}
