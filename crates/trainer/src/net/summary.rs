//! What a net is, for its reader: its input, and what each layer takes.

use super::{Net, bytes, graph::Node};
use crate::error::Result;
use memory::{LayerMemory, policy::LayerWork};
use tensor::TensorType;

impl Net {
    /// The shape of what the net is fed, (samples, ...).
    pub fn input(&self) -> Option<&TensorType> {
        let mut sources = self.graph.nodes.iter().filter(|node| node.bottoms.is_empty());
        let source = sources.clone().find(|node| node.spec.kind.reads_data()).or_else(|| sources.next())?;
        source.tops.first().map(|&top| &self.graph.values[top].shape)
    }

    /// Mini-batches that `epochs` passes over its data set take, of which so many samples are `seen`; the last may begin
    /// the set anew.
    ///
    /// # Errors
    /// It reads no data set.
    pub fn mini_batches(&self, epochs: usize, seen: usize) -> Result<usize> {
        let error = || self.error("it reads no data set, so nobody knows how long an epoch is");
        let images =
            self.loaders().map(|(_, loader)| loader.dataset().facts().len).max().ok_or_else(error)?;
        Ok(images.saturating_mul(epochs).saturating_sub(seen).div_ceil(self.mini_batch()))
    }

    /// Samples per iteration.
    pub fn mini_batch(&self) -> usize {
        self.input().map_or(1, TensorType::n)
    }

    /// Where the classifier begins: the first fully connected layer behind the last convolution, or the end.
    pub fn classifier(&self) -> usize {
        let is = |name: &'static str| move |node: &Node| node.spec.kind.type_name() == name;
        let nodes = &self.graph.nodes;
        let features = nodes.iter().rposition(is("Convolution")).unwrap_or(0);
        nodes[features..].iter().position(is("InnerProduct")).map_or(nodes.len(), |behind| features + behind)
    }

    /// What each layer computes: two operations for each weight at each place of a filter, else one for each element.
    pub fn work(&self) -> Vec<LayerWork> {
        let graph = &self.graph;
        let count =
            |values: &[usize]| values.iter().map(|&value| graph.values[value].shape.count()).sum::<usize>();
        let work = graph.nodes.iter().map(|node| {
            let filter = node.params.first().map(|&param| graph.params[param].declaration.shape.count());
            let forward = match (node.spec.kind.type_name(), filter) {
                ("Convolution" | "InnerProduct", Some(filter)) => {
                    let top = &graph.values[node.tops[0]].shape;
                    2 * filter * (top.count() / top.c().max(1))
                }
                _ => count(&node.bottoms) + count(&node.tops),
            };
            let flops = [1.0, 2.0].map(|times| times * forward as f64);
            LayerWork { kind: node.spec.kind.type_name().to_owned(), flops }
        });
        work.collect()
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
        let layers = graph.nodes.iter().map(|node| {
            let tops = || node.tops.iter().map(|&top| (top, &graph.values[top]));
            let own = || tops().filter(|(top, value)| value.root == *top).map(|(_, value)| value);
            let [forward, backward] = node.declaration.scratch.map(bytes);
            let weights = node.params.iter().filter(|&&param| !std::mem::replace(&mut counted[param], true));
            LayerMemory {
                name: node.spec.name.clone(),
                type_name: node.spec.kind.type_name().to_owned(),
                shape: tops().next().map_or_else(String::new, |(_, top)| top.shape.to_string()),
                data: own().map(|value| bytes(value.shape.space())).sum(),
                diff: own().filter(|value| value.needs_diff).map(|value| bytes(value.shape.space())).sum(),
                workspace: forward.max(backward),
                weights: weights.map(|&param| bytes(graph.params[param].space())).sum(),
            }
        });
        layers.collect()
    }
}
