//! What a net is, for its reader: its input, and what each layer takes.

use super::{
    Net,
    schedule::{Pass, Step},
};
use planner::Bytes;
use serde::Serialize;
use tensor::TensorType;

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
    pub data: Bytes,
    /// Their gradients; 0 in place and where none is computed.
    pub diff: Bytes,
    /// Workspace and other scratch, the larger of the forward and the backward step.
    pub workspace: Bytes,
    /// Parameters and persistent state; a shared parameter counts where it first stands.
    pub weights: Bytes,
}

impl Net {
    /// The shape of what the net is fed, (samples, ...).
    pub fn input(&self) -> Option<&TensorType> {
        let source = self.graph.nodes.iter().find(|node| node.bottoms.is_empty())?;
        source.tops.first().map(|&top| &self.graph.values[top].shape)
    }

    /// Samples per iteration.
    pub fn mini_batch(&self) -> usize {
        self.input().map_or(1, TensorType::n)
    }

    /// Elements of all learned parameters.
    pub fn learned(&self) -> usize {
        let params = self.graph.params.iter().map(|param| &param.declaration);
        params.filter(|declaration| declaration.learned).map(|declaration| declaration.shape.count()).sum()
    }

    /// The memory of every layer, with the plan that is installed.
    pub fn layer_memory(&self) -> Vec<LayerMemory> {
        let graph = &self.graph;
        let mut counted = vec![false; graph.params.len()];
        let layers = graph.nodes.iter().enumerate().map(|(index, node)| {
            let tops = || node.tops.iter().map(|&top| (top, &graph.values[top]));
            let own = || tops().filter(|(top, value)| value.root == *top).map(|(_, value)| value);
            let weights = node.params.iter().filter(|&&param| !std::mem::replace(&mut counted[param], true));
            let scratch = [Pass::Forward, Pass::Backward].map(|pass| {
                let scratch = self.scratch(Step { node: index, pass });
                scratch.segment().map_or_else(|| scratch.transient_len(), |span| span.len)
            });
            LayerMemory {
                name: node.name.clone(),
                type_name: node.type_name,
                shape: tops().next().map_or_else(String::new, |(_, top)| top.shape.to_string()),
                data: own().map(|value| bytes(&value.shape)).sum(),
                diff: own().filter(|value| value.needs_diff).map(|value| bytes(&value.shape)).sum(),
                workspace: Bytes(scratch[0].max(scratch[1]) as u64),
                weights: weights.map(|&param| bytes(&graph.params[param].declaration.shape)).sum(),
            }
        });
        layers.collect()
    }
}

fn bytes(tensor: &TensorType) -> Bytes {
    Bytes(tensor.space().bytes() as u64)
}
