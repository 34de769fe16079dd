//! What one action of a schedule hands to its layer.

use super::Net;
use super::graph::{Node, ValueId};
use super::layout::NetLayout;
use crate::error::{BoxError, NetError, Result};
use crate::layers::{Absorbed, Backward, Forward, Need, Out};
use cudnn_layers::softmax::labels::device_fault;
use memory::{Action, Buffer};
use tensor::{Accumulate, Arena, Span, View, ViewMut};

impl Net {
    /// Has a layer do action number `at` of its schedule, in a mini-batch of this number, which stands in the device's
    /// memory, too. Gradients of parameters add to those of earlier mini-batches if `accumulate` says so. A GPU's work
    /// is launched, not waited for.
    pub(crate) fn compute(
        &mut self,
        layout: &NetLayout,
        arena: &mut Arena,
        at: usize,
        (number, iteration): (u64, View<'_>),
        accumulate: Accumulate,
        timed: bool,
    ) -> Result<()> {
        let action = layout.places.schedule.actions[at];
        let (Action::Forward(node) | Action::Recompute(node) | Action::Backward(node)) = action else {
            panic!("{action:?} is done by no layer");
        };
        let Node { absorbed, ref bottoms, .. } = self.graph.nodes[node];
        let (is_source, is_filled) = (bottoms.is_empty(), self.filled[node]);
        let requests = Requests { net: self, layout, arena, node, at, timed };
        let result = match action {
            // The layer before has done this one's work.
            Action::Backward(_) if absorbed.is_backward() => Ok(()),
            Action::Backward(_) => requests.backward(iteration, accumulate),
            _ if absorbed != Absorbed::No || is_filled => Ok(()),
            _ if is_source => requests.upload(number),
            _ => requests.forward(iteration, matches!(action, Action::Recompute(_))),
        };
        result.map_err(|error| NetError::run(&self.graph.nodes[node].spec.name, error))
    }

    /// The parameters of a node that the solver changes, and those that its layer does.
    fn learned_and_state(&self, node: &Node) -> (Vec<usize>, Vec<usize>) {
        node.used_params.iter().partition(|&&param| self.graph.params[param].declaration.learned)
    }

    /// Waits for the device.
    ///
    /// # Errors
    /// Something that was asked of it failed, or it met a label out of range, which on a processor is an error at once.
    pub fn check(&self) -> Result<()> {
        self.device.check()?;
        let refused = |label| Err(NetError::Refused(format!("a loss or an accuracy: {label}")));
        device_fault(&self.device).map_or(Ok(()), refused)
    }
}

/// Collects what one action needs, leases it all at once, and hands it to the layer.
struct Requests<'a> {
    net: &'a mut Net,
    layout: &'a NetLayout,
    arena: &'a mut Arena,
    node: usize,
    at: usize,
    timed: bool,
}

impl Requests<'_> {
    fn upload(self, number: u64) -> Result<(), BoxError> {
        let Requests { net, layout, arena, node, at, .. } = self;
        let tops: Vec<Span> =
            net.graph.nodes[node].tops.iter().map(|&value| layout.data(value, at)).collect();
        let (_, tops) = arena.lease_all(&[], &tops)?;
        net.layers[node].upload(&net.device, number, tops)?;
        net.filled[node] = net.graph.nodes[node].declaration.constant;
        Ok(())
    }

    fn forward(self, iteration: View<'_>, repeat: bool) -> Result<(), BoxError> {
        let Requests { net, layout, arena, node: index, at, timed } = self;
        let node = &net.graph.nodes[index];
        let bottoms = if node.in_place { &[][..] } else { &node.bottoms };
        let (learned, state) = net.learned_and_state(node);
        let data = |&value: &ValueId| layout.data(value, at);
        let param = |&param: &usize| layout.params[param].read();
        let reads: Vec<Span> = bottoms.iter().map(data).chain(learned.iter().map(param)).collect();
        let kept = [Buffer::Saved(index), Buffer::Scratch(at)].map(|buffer| layout.span(buffer, at));
        let writes: Vec<Span> =
            node.tops.iter().map(data).chain(state.iter().map(param)).chain(kept).collect();
        let (reads, writes) = arena.lease_all(&reads, &writes)?;
        let (mut reads, mut writes) = (reads.into_iter(), writes.into_iter());
        let io = Forward {
            iteration,
            repeat,
            bottoms: reads.by_ref().take(bottoms.len()).collect(),
            tops: writes.by_ref().take(node.tops.len()).collect(),
            params: reads.collect(),
            state: writes.by_ref().take(state.len()).collect(),
            rectify: node.rectify,
            timed,
            saved: writes.next().expect(LEASED),
            scratch: writes.next().expect(LEASED),
        };
        net.layers[index].forward(&net.device, io)
    }

    fn backward(self, iteration: View<'_>, accumulate: Accumulate) -> Result<(), BoxError> {
        let Requests { net, layout, arena, node: index, at, timed } = self;
        let graph = &net.graph;
        let node = &graph.nodes[index];
        let bottoms = &node.bottoms[..node.declaration.read_bottoms];
        let tops = if node.declaration.needs_top != Need::Nothing { &node.tops[..] } else { &[] };
        let (learned, _) = net.learned_and_state(node);
        let top_diffs = if node.in_place { &[] } else { &node.tops[..] };
        let top_diffs: Vec<Option<Span>> = (top_diffs.iter())
            .map(|&value| graph.values[value].needs_diff.then(|| layout.diff(value, at)))
            .collect();
        let bottom_diffs: Vec<Diff> = (node.bottoms.iter().zip(&node.propagates))
            .map(|(&bottom, &wanted)| wanted.map(|accumulate| (layout.diff(bottom, at), accumulate)))
            .collect();
        let param_diffs: Vec<Diff> = (node.used_params.iter().zip(&node.param_accumulate))
            .filter(|&(&param, _)| graph.params[param].declaration.learned)
            .map(|(&param, &first)| {
                let accumulate = if first == Accumulate::Add { first } else { accumulate };
                let diff = graph.params[param].trained.then(|| layout.params[param].diff.expect("trained"));
                diff.map(|diff| (diff, accumulate))
            })
            .collect();

        let data = |&value: &ValueId| layout.data(value, at);
        let param = |&param: &usize| layout.params[param].read();
        let reads = bottoms.iter().chain(tops).map(data).chain(top_diffs.iter().flatten().copied());
        let reads = reads.chain(learned.iter().map(param)).chain([layout.span(Buffer::Saved(index), at)]);
        let diffs = bottom_diffs.iter().chain(&param_diffs).flatten().map(|&(diff, _)| diff);
        let writes = diffs.chain([layout.span(Buffer::Scratch(at), at)]);
        let (reads, writes) = arena.lease_all(&reads.collect::<Vec<_>>(), &writes.collect::<Vec<_>>())?;
        let (mut reads, mut writes) = (reads.into_iter(), writes.into_iter());
        let io = Backward {
            iteration,
            bottoms: reads.by_ref().take(bottoms.len()).collect(),
            tops: reads.by_ref().take(tops.len()).collect(),
            top_diffs: top_diffs.iter().map(|diff| diff.and_then(|_| reads.next())).collect(),
            bottom_diffs: gradients(&bottom_diffs, &mut writes),
            params: reads.by_ref().take(learned.len()).collect(),
            param_diffs: gradients(&param_diffs, &mut writes),
            rectify: node.rectify,
            timed,
            saved: reads.next().expect(LEASED),
            scratch: writes.next().expect(LEASED),
        };
        net.layers[index].backward(&net.device, io)
    }
}

const LEASED: &str = "a view for each span";

/// Where a gradient goes, if it is wanted.
type Diff = Option<(Span, Accumulate)>;

/// The next of `views` for each gradient that is wanted.
fn gradients<'a>(diffs: &[Diff], views: &mut impl Iterator<Item = ViewMut<'a>>) -> Vec<Option<Out<'a>>> {
    let mut next = |accumulate| Out { to: views.next().expect(LEASED), accumulate };
    diffs.iter().map(|diff| diff.map(|(_, accumulate)| next(accumulate))).collect()
}
