//! Executing a schedule.

use super::{
    Net,
    graph::{Node, ValueId},
    layout::NetLayout,
    schedule::{Pass, Step},
};
use crate::{
    error::NetError,
    layers::{Absorbed, Backward, Forward, Gradient, Need},
};
use cudnn_layers::{sgd, softmax::labels::device_fault};
use tensor::{Accumulate, Arena, Span, ViewMut, cuda::CudaError};

/// What an iteration is told besides its data.
#[derive(Clone, Copy, Debug)]
pub struct Iteration {
    /// Completed iterations: with the seed, what random layers draw from.
    pub number: u64,
    /// Whether the gradients of parameters add to those of earlier mini-batches (`iter_size`).
    pub accumulate: Accumulate,
}

impl Net {
    /// Does the host's part in iteration `number`, before anything else in it: the steps of the layers that bring data, and
    /// the number itself. It is no part of recorded work: before each replay there has to be one.
    ///
    /// # Errors
    /// As [`Net::forward`].
    pub fn upload(
        &mut self,
        layout: &NetLayout,
        arena: &mut Arena,
        number: u64,
        mut observe: impl FnMut(Step) -> Result<(), CudaError>,
    ) -> Result<(), NetError> {
        self.number.set(number)?;
        let pass = Pass::Forward;
        for index in (0..self.layers.len()).filter(|&node| self.graph.nodes[node].bottoms.is_empty()) {
            let node = &self.graph.nodes[index];
            if !self.filled[index] {
                let spans: Vec<Span> = node.tops.iter().map(|&value| layout.data[value]).collect();
                let uploaded = match arena.lease_all(&[], &spans) {
                    Ok((_, tops)) => self.layers[index].upload(&self.device, number, tops),
                    Err(error) => Err(error.into()),
                };
                uploaded.map_err(|source| NetError::Run { layer: node.name.clone(), source })?;
                self.filled[index] = node.declaration.constant;
            }
            observe(Step { node: index, pass })?;
        }
        Ok(())
    }

    /// Runs all forward steps, telling `observe` after each; [`Net::upload`] comes first, unless the work is recorded. A
    /// GPU's steps are launched, not waited for.
    ///
    /// # Errors
    /// What a layer reports of its data, with the layer's name, and what `observe` returns.
    pub fn forward(
        &mut self,
        layout: &NetLayout,
        arena: &mut Arena,
        iteration: Iteration,
        mut observe: impl FnMut(Step) -> Result<(), CudaError>,
    ) -> Result<(), NetError> {
        if !self.device.is_recording() {
            self.upload(layout, arena, iteration.number, &mut observe)?;
        }
        self.steps(Pass::Forward, layout, arena, iteration, observe)
    }

    /// Runs all backward steps, likewise. The gradients of parameters are left in the arena.
    ///
    /// # Errors
    /// As [`Net::forward`].
    pub fn backward(
        &mut self,
        layout: &NetLayout,
        arena: &mut Arena,
        iteration: Iteration,
        observe: impl FnMut(Step) -> Result<(), CudaError>,
    ) -> Result<(), NetError> {
        self.steps(Pass::Backward, layout, arena, iteration, observe)
    }

    fn steps(
        &mut self,
        pass: Pass,
        layout: &NetLayout,
        arena: &mut Arena,
        iteration: Iteration,
        mut observe: impl FnMut(Step) -> Result<(), CudaError>,
    ) -> Result<(), NetError> {
        for (index, &step) in layout.schedule.steps.iter().enumerate().filter(|(_, step)| step.pass == pass) {
            if self.graph.nodes[step.node].bottoms.is_empty() {
                continue; // uploaded
            }
            let requests = Requests { net: self, layout, arena, step, scratch: layout.scratch[index] };
            let result = match pass {
                _ if requests.is_done_already() => Ok(()),
                Pass::Forward => requests.forward(),
                Pass::Backward => requests.backward(iteration),
            };
            let name = &self.graph.nodes[step.node].name;
            result.map_err(|source| NetError::Run { layer: name.clone(), source })?;
            observe(step)?;
        }
        Ok(())
    }

    /// The objective after a forward pass: the weighted sum of the losses.
    ///
    /// # Errors
    /// As [`Net::check`].
    pub fn loss(&self, layout: &NetLayout, arena: &Arena) -> Result<f64, NetError> {
        let mut loss = 0.0;
        for (value, weight) in self.objective() {
            loss += weight * self.values(layout, arena, value)?.iter().sum::<f64>();
        }
        Ok(loss)
    }

    /// The losses, where a forward pass leaves them.
    pub fn losses<'a>(&self, layout: &NetLayout, arena: &'a Arena) -> Vec<sgd::Loss<'a>> {
        self.objective().map(|(value, weight)| (arena.view(layout.data[value]), weight)).collect()
    }

    /// The values that the objective is the sum of, and their weights.
    fn objective(&self) -> impl Iterator<Item = (ValueId, f64)> {
        self.graph.nodes.iter().flat_map(|node| {
            let weights = node.declaration.loss_weights.iter().map(|&weight| f64::from(weight));
            node.tops.iter().copied().zip(weights)
        })
    }

    /// The elements of a value.
    ///
    /// # Errors
    /// As [`Net::check`].
    pub fn values(&self, layout: &NetLayout, arena: &Arena, value: ValueId) -> Result<Vec<f64>, NetError> {
        self.check()?;
        let values = arena.read::<f32>(layout.data[value])?;
        Ok(values.iter().map(|&value| f64::from(value)).collect())
    }

    /// The parameters of a node that the solver changes, and those that its layer does.
    fn learned_and_state(&self, node: &Node) -> (Vec<usize>, Vec<usize>) {
        node.params.iter().partition(|&&param| self.graph.params[param].declaration.learned)
    }

    /// Waits for the device.
    ///
    /// # Errors
    /// Something that was asked of it failed, or it met a label out of range, which on a processor is an error at once.
    pub fn check(&self) -> Result<(), NetError> {
        self.device.check()?;
        device_fault(&self.device).map_or(Ok(()), |label| Err(NetError::Label(label)))
    }
}

/// Collects what one step needs, leases it all at once, and hands it to the layer.
struct Requests<'a> {
    net: &'a mut Net,
    layout: &'a NetLayout,
    arena: &'a mut Arena,
    step: Step,
    scratch: Span,
}

type Result<T, E = crate::error::BoxError> = std::result::Result<T, E>;

impl Requests<'_> {
    /// Whether the layer before has done this one's work.
    fn is_done_already(&self) -> bool {
        let absorbed = self.net.graph.nodes[self.step.node].absorbed;
        match self.step.pass {
            Pass::Forward => absorbed != Absorbed::No,
            Pass::Backward => absorbed == Absorbed::Both,
        }
    }

    fn forward(self) -> Result<()> {
        let Requests { net, layout, arena, step, scratch } = self;
        let node = &net.graph.nodes[step.node];
        let bottoms = if node.in_place { &[][..] } else { &node.bottoms };
        let (learned, state) = net.learned_and_state(node);
        let data = |&value: &ValueId| layout.data[value];
        let param = |&param: &usize| layout.params[param].data;
        let reads: Vec<Span> = bottoms.iter().map(data).chain(learned.iter().map(param)).collect();
        let kept = [layout.saved[step.node], scratch];
        let writes: Vec<Span> =
            node.tops.iter().map(data).chain(state.iter().map(param)).chain(kept).collect();
        let (reads, writes) = arena.lease_all(&reads, &writes)?;
        let (mut reads, mut writes) = (reads.into_iter(), writes.into_iter());
        let io = Forward {
            iteration: net.number.view(),
            bottoms: reads.by_ref().take(bottoms.len()).collect(),
            tops: writes.by_ref().take(node.tops.len()).collect(),
            params: reads.collect(),
            state: writes.by_ref().take(state.len()).collect(),
            rectify: node.rectify,
            saved: writes.next().expect(LEASED),
            scratch: writes.next().expect(LEASED),
        };
        net.layers[step.node].forward(&net.device, io)
    }

    fn backward(self, iteration: Iteration) -> Result<()> {
        let Requests { net, layout, arena, step, scratch } = self;
        let (graph, schedule) = (&net.graph, &layout.schedule);
        let node = &graph.nodes[step.node];
        let bottoms = if node.declaration.needs_bottom { &node.bottoms[..] } else { &[] };
        let tops = if node.declaration.needs_top != Need::Nothing { &node.tops[..] } else { &[] };
        let (learned, state) = net.learned_and_state(node);
        let top_diffs = if node.in_place { &[] } else { &node.tops[..] };
        let top_diffs: Vec<Option<Span>> = (top_diffs.iter())
            .map(|&value| graph.values[value].needs_diff.then_some(layout.diff[value]))
            .collect();
        let bottom_diffs: Vec<Diff> = (node.bottoms.iter().zip(&node.propagates))
            .zip(&schedule.bottom_accumulate[step.node])
            .map(|((&bottom, &wanted), &accumulate)| wanted.then_some((layout.diff[bottom], accumulate)))
            .collect();
        let param_diffs: Vec<Diff> = (node.params.iter().zip(&schedule.param_accumulate[step.node]))
            .filter(|&(&param, _)| graph.params[param].declaration.learned)
            .map(|(&param, &first)| {
                let accumulate = if first == Accumulate::Add { first } else { iteration.accumulate };
                let diff = graph.params[param].trained.then(|| layout.params[param].diff.expect("trained"));
                diff.map(|diff| (diff, accumulate))
            })
            .collect();

        let data = |&value: &ValueId| layout.data[value];
        let param = |&param: &usize| layout.params[param].data;
        let reads = bottoms.iter().chain(tops).map(data).chain(top_diffs.iter().flatten().copied());
        let reads = reads.chain(learned.iter().chain(&state).map(param)).chain([layout.saved[step.node]]);
        let diffs = bottom_diffs.iter().chain(&param_diffs).flatten().map(|&(diff, _)| diff);
        let (reads, writes) =
            arena.lease_all(&reads.collect::<Vec<_>>(), &diffs.chain([scratch]).collect::<Vec<_>>())?;
        let (mut reads, mut writes) = (reads.into_iter(), writes.into_iter());
        let io = Backward {
            iteration: net.number.view(),
            bottoms: reads.by_ref().take(bottoms.len()).collect(),
            tops: reads.by_ref().take(tops.len()).collect(),
            top_diffs: top_diffs.iter().map(|diff| diff.and_then(|_| reads.next())).collect(),
            bottom_diffs: gradients(&bottom_diffs, &mut writes),
            params: reads.by_ref().take(learned.len()).collect(),
            param_diffs: gradients(&param_diffs, &mut writes),
            state: reads.by_ref().take(state.len()).collect(),
            rectify: node.rectify,
            saved: reads.next().expect(LEASED),
            scratch: writes.next().expect(LEASED),
        };
        net.layers[step.node].backward(&net.device, io)
    }
}

const LEASED: &str = "a view for each span";

/// Where a gradient goes, if it is wanted.
type Diff = Option<(Span, Accumulate)>;

/// The next of `views` for each gradient that is wanted.
fn gradients<'a>(diffs: &[Diff], views: &mut impl Iterator<Item = ViewMut<'a>>) -> Vec<Option<Gradient<'a>>> {
    let mut next = |accumulate| Gradient { diff: views.next().expect(LEASED), accumulate };
    diffs.iter().map(|diff| diff.map(|(_, accumulate)| next(accumulate))).collect()
}
