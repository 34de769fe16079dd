//! The ordered steps of one iteration, and how long each buffer holds something.

use super::{
    graph::{Graph, ValueId},
    memory::Lifetime,
};
use crate::layers::Need;
use std::collections::HashSet;
use tensor::Accumulate;

/// Which pass of a layer a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Bottoms to tops.
    Forward,
    /// Gradients of the tops to gradients of bottoms and parameters.
    Backward,
}

/// One step: one pass of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Index of the node.
    pub node: usize,
    /// The pass.
    pub pass: Pass,
}

/// What a transient buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// Data of the values with this root.
    Data(ValueId),
    /// Their gradient.
    Diff(ValueId),
    /// What a node keeps from forward to backward.
    Saved(usize),
    /// Scratch or workspace of a step.
    Scratch(usize),
}

/// The steps of an iteration and the lifetimes of its transient buffers.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// All forward steps, then all backward steps.
    pub steps: Vec<Step>,
    /// Buffers and lifetimes, in steps. Constant data is not among them: it outlives the iteration.
    pub buffers: Vec<(Buffer, Lifetime)>,
    /// For each node and bottom, whether its gradient is the first to arrive or adds to others.
    pub bottom_accumulate: Vec<Vec<Accumulate>>,
    /// For each node and parameter, the same; a shared parameter gets gradients from several nodes.
    pub param_accumulate: Vec<Vec<Accumulate>>,
}

impl Schedule {
    /// The schedule of `graph`, with `scratch_len(step)` bytes of transient scratch for each step.
    pub fn new(graph: &Graph, scratch_len: impl Fn(Step) -> usize) -> Self {
        let forward = (0..graph.nodes.len()).map(|node| Step { node, pass: Pass::Forward });
        let backward = (0..graph.nodes.len()).rev().filter(|&node| graph.nodes[node].backward);
        let steps: Vec<Step> =
            forward.chain(backward.map(|node| Step { node, pass: Pass::Backward })).collect();
        let clock = Clock::new(graph, &steps);
        let mut buffers = clock.data(graph);
        buffers.extend(clock.diffs(graph));
        buffers.extend(clock.saved(graph));
        buffers.extend(steps.iter().enumerate().map(|(index, &step)| {
            (Buffer::Scratch(index), Lifetime { len: scratch_len(step), first: index, last: index })
        }));
        let (bottom_accumulate, param_accumulate) = accumulation(graph, &steps);
        Self { steps, buffers, bottom_accumulate, param_accumulate }
    }

    /// The number of forward steps: where the backward steps begin.
    pub fn forward_steps(&self) -> usize {
        self.steps.iter().filter(|step| step.pass == Pass::Forward).count()
    }
}

/// When each node runs forward and backward.
struct Clock {
    forward: Vec<usize>,
    backward: Vec<Option<usize>>,
    end: usize,
}

impl Clock {
    fn new(graph: &Graph, steps: &[Step]) -> Self {
        let mut clock = Self {
            forward: vec![0; graph.nodes.len()],
            backward: vec![None; graph.nodes.len()],
            end: steps.len().saturating_sub(1),
        };
        for (index, step) in steps.iter().enumerate() {
            match step.pass {
                Pass::Forward => clock.forward[step.node] = index,
                Pass::Backward => clock.backward[step.node] = Some(index),
            }
        }
        clock
    }

    fn data(&self, graph: &Graph) -> Vec<(Buffer, Lifetime)> {
        let mut last = vec![0; graph.values.len()];
        for (id, value) in graph.values.iter().enumerate() {
            last[value.root] = last[value.root].max(self.last_use(graph, id));
        }
        let roots = (0..graph.values.len()).filter(|&id| graph.values[id].root == id);
        let transient = roots.filter(|&id| !graph.nodes[graph.values[id].producer].declaration.constant);
        transient
            .map(|root| {
                let producer = graph.values[root].producer;
                // What the host brings is there before the first step.
                let uploaded = graph.nodes[producer].bottoms.is_empty();
                let first = if uploaded { 0 } else { self.forward[producer] };
                let len = graph.values[root].shape.space().bytes();
                (Buffer::Data(root), Lifetime { len, first, last: last[root] })
            })
            .collect()
    }

    /// The last step that reads a value's data. A loss, or a value that nobody reads, is an output of the net: it stays to
    /// the end.
    fn last_use(&self, graph: &Graph, id: ValueId) -> usize {
        let value = &graph.values[id];
        if value.consumers.is_empty() || !graph.nodes[value.producer].declaration.loss_weights.is_empty() {
            return self.end;
        }
        let forward = value.consumers.iter().map(|&node| self.forward[node]);
        let needs_bottom = value.consumers.iter().filter(|&&node| graph.nodes[node].declaration.needs_bottom);
        let needs_top = graph.nodes[value.producer].declaration.needs_top != Need::Nothing;
        let backward = needs_bottom.chain(needs_top.then_some(&value.producer));
        forward.chain(backward.filter_map(|&node| self.backward[node])).max().expect("there is a consumer")
    }

    fn diffs(&self, graph: &Graph) -> Vec<(Buffer, Lifetime)> {
        // Of every root, when the first gradient is written and the last is read.
        let mut uses: Vec<[Option<usize>; 2]> = vec![[None; 2]; graph.values.len()];
        for value in graph.values.iter().filter(|value| value.needs_diff) {
            let [first, last] = &mut uses[value.root];
            let writers = value.consumers.iter().filter_map(|&node| self.backward[node]);
            *first = first.iter().copied().chain(writers).min();
            *last = (*last).max(self.backward[value.producer]);
        }
        let roots = (0..graph.values.len()).filter(|&id| graph.values[id].root == id);
        roots
            .filter_map(|root| {
                let [first, last] = uses[root];
                let len = graph.values[root].shape.space().bytes();
                Some((Buffer::Diff(root), Lifetime { len, first: first?, last: last.unwrap_or(self.end) }))
            })
            .collect()
    }

    fn saved(&self, graph: &Graph) -> Vec<(Buffer, Lifetime)> {
        (0..graph.nodes.len())
            .map(|node| {
                let first = self.forward[node];
                let last = self.backward[node].unwrap_or(first);
                let len = graph.nodes[node].declaration.saved.bytes();
                (Buffer::Saved(node), Lifetime { len, first, last })
            })
            .collect()
    }
}

/// The first gradient to reach a value or parameter replaces what is there, later ones add. This is what makes the
/// implicit Split of a blob with several readers.
fn accumulation(graph: &Graph, steps: &[Step]) -> (Vec<Vec<Accumulate>>, Vec<Vec<Accumulate>>) {
    let (mut values, mut params) = (HashSet::new(), HashSet::new());
    let first = |seen: &mut HashSet<usize>, id: usize| match seen.insert(id) {
        true => Accumulate::Replace,
        false => Accumulate::Add,
    };
    let mut by_bottom = vec![Vec::new(); graph.nodes.len()];
    let mut by_param = vec![Vec::new(); graph.nodes.len()];
    for step in steps.iter().filter(|step| step.pass == Pass::Backward) {
        let node = &graph.nodes[step.node];
        by_bottom[step.node] = (node.bottoms.iter().zip(&node.propagates))
            .map(|(&bottom, &wanted)| if wanted { first(&mut values, bottom) } else { Accumulate::Replace })
            .collect();
        by_param[step.node] = node.params.iter().map(|&param| first(&mut params, param)).collect();
    }
    (by_bottom, by_param)
}
