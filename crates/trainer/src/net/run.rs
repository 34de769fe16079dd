//! Executing a schedule.

use super::{
    Net,
    graph::ValueId,
    layout::NetLayout,
    schedule::{Pass, Step},
};
use crate::{
    error::NetError,
    layers::{Backward, Forward, Gradient},
};
use cudnn_layers::softmax::labels::device_fault;
use tensor::{Access, Accumulate, Arena, Lease, Span, View, ViewMut, cuda::CudaError};

/// What an iteration is told besides its data.
#[derive(Clone, Copy, Debug)]
pub struct Iteration {
    /// Completed iterations: with the seed, what random layers draw from.
    pub number: u64,
    /// Whether the gradients of parameters add to those of earlier mini-batches (`iter_size`).
    pub accumulate: Accumulate,
}

impl Net {
    /// Runs all forward steps, telling `observe` after each. A GPU's steps are asked for, not waited for.
    ///
    /// # Errors
    /// What a layer reports of its data, with the layer's name, and what `observe` returns.
    pub fn forward(
        &mut self,
        layout: &NetLayout,
        arena: &mut Arena,
        iteration: Iteration,
        observe: impl FnMut(Step) -> Result<(), CudaError>,
    ) -> Result<(), NetError> {
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
            let requests = Requests { net: self, layout, arena, step, scratch: layout.scratch[index] };
            let result = match pass {
                Pass::Forward => requests.forward(iteration),
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
        for node in &self.graph.nodes {
            for (&top, &weight) in node.tops.iter().zip(&node.declaration.loss_weights) {
                loss += f64::from(weight) * self.values(layout, arena, top)?.iter().sum::<f64>();
            }
        }
        Ok(loss)
    }

    /// The elements of a value.
    ///
    /// # Errors
    /// As [`Net::check`].
    pub fn values(&self, layout: &NetLayout, arena: &Arena, value: ValueId) -> Result<Vec<f64>, NetError> {
        self.check()?;
        Ok(arena.read(layout.data[value])?.iter().map(|&value| f64::from(value)).collect())
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
    fn forward(self, iteration: Iteration) -> Result<()> {
        let Requests { net, layout, arena, step, scratch } = self;
        let node = &net.graph.nodes[step.node];
        let bottoms = if node.in_place { &[][..] } else { &node.bottoms };
        let mut spans = Spans::default();
        spans.extend(bottoms.iter().map(|&value| layout.data[value]), Access::Read);
        spans.extend(node.tops.iter().map(|&value| layout.data[value]), Access::Write);
        for &param in &node.params {
            let access =
                if net.graph.params[param].declaration.learned { Access::Read } else { Access::Write };
            spans.push(layout.params[param].data, access);
        }
        spans.push(layout.saved[step.node], Access::Write);
        spans.push(scratch, Access::Write);
        let mut leases = spans.lease(arena)?;
        let (tops_len, params_len) = (node.tops.len(), node.params.len());
        let bottoms = leases.reads(bottoms.len());
        let tops = leases.writes(tops_len);
        let (params, state) = leases.split(params_len);
        let io = Forward {
            iteration: iteration.number,
            bottoms,
            tops,
            params,
            state,
            saved: leases.write(),
            scratch: leases.write(),
        };
        net.layers[step.node].forward(&net.device, io)
    }

    fn backward(self, iteration: Iteration) -> Result<()> {
        let Requests { net, layout, arena, step, scratch } = self;
        let (graph, schedule) = (&net.graph, &layout.schedule);
        let node = &graph.nodes[step.node];
        let declaration = &node.declaration;
        let bottoms = if declaration.needs_bottom { &node.bottoms[..] } else { &[] };
        let tops = if declaration.needs_top != Default::default() { &node.tops[..] } else { &[] };
        let top_diffs = if node.in_place { &[] } else { &node.tops[..] };
        let has_diff = |value: usize| graph.values[value].needs_diff;
        let trained = |param: usize| graph.params[param].trained;
        let learned = |param: usize| graph.params[param].declaration.learned;

        let mut spans = Spans::default();
        spans.extend(bottoms.iter().map(|&value| layout.data[value]), Access::Read);
        spans.extend(tops.iter().map(|&value| layout.data[value]), Access::Read);
        let diffs = top_diffs.iter().filter(|&&value| has_diff(value));
        spans.extend(diffs.map(|&value| layout.diff[value]), Access::Read);
        for (&bottom, _) in node.bottoms.iter().zip(&node.propagates).filter(|(_, wanted)| **wanted) {
            spans.push(layout.diff[bottom], Access::Write);
        }
        spans.extend(node.params.iter().map(|&param| layout.params[param].data), Access::Read);
        let diffs = node.params.iter().filter(|&&param| trained(param));
        spans.extend(diffs.map(|&param| layout.params[param].diff.expect("trained")), Access::Write);
        spans.push(layout.saved[step.node], Access::Read);
        spans.push(scratch, Access::Write);
        let mut leases = spans.lease(arena)?;

        let bottoms = leases.reads(bottoms.len());
        let tops = leases.reads(tops.len());
        let top_diffs = top_diffs.iter().map(|&value| has_diff(value).then(|| leases.read())).collect();
        let bottom_diffs = (node.propagates.iter().zip(&schedule.bottom_accumulate[step.node]))
            .map(|(&wanted, &accumulate)| wanted.then(|| Gradient { diff: leases.write(), accumulate }))
            .collect();
        let all: Vec<(usize, View<'_>)> = node.params.iter().map(|&param| (param, leases.read())).collect();
        let pick = |wanted: bool| {
            all.iter().filter(move |(param, _)| learned(*param) == wanted).map(|&(_, view)| view)
        };
        let (params, state) = (pick(true).collect(), pick(false).collect());
        let param_diffs = (node.params.iter().zip(&schedule.param_accumulate[step.node]))
            .filter(|&(&param, _)| learned(param))
            .map(|(&param, &first)| {
                let accumulate = if first == Accumulate::Add { first } else { iteration.accumulate };
                trained(param).then(|| Gradient { diff: leases.write(), accumulate })
            })
            .collect();
        let io = Backward {
            iteration: iteration.number,
            bottoms,
            tops,
            top_diffs,
            bottom_diffs,
            params,
            param_diffs,
            state,
            saved: leases.read(),
            scratch: leases.write(),
        };
        net.layers[step.node].backward(&net.device, io)
    }
}

/// What to lease, in order.
#[derive(Default)]
struct Spans(Vec<(Span, Access)>);

impl Spans {
    fn push(&mut self, span: Span, access: Access) {
        self.0.push((span, access));
    }

    fn extend(&mut self, spans: impl Iterator<Item = Span>, access: Access) {
        self.0.extend(spans.map(|span| (span, access)));
    }

    fn lease(self, arena: &mut Arena) -> Result<Leases<'_>> {
        Ok(Leases(arena.lease(&self.0)?.into_iter()))
    }
}

/// What was leased, taken in the order in which it was asked for.
struct Leases<'a>(std::vec::IntoIter<Lease<'a>>);

impl<'a> Leases<'a> {
    fn read(&mut self) -> View<'a> {
        match self.0.next() {
            Some(Lease::Read(view)) => view,
            other => unreachable!("a lease for reading was asked for here, not {other:?}"),
        }
    }

    fn write(&mut self) -> ViewMut<'a> {
        match self.0.next() {
            Some(Lease::Write(view)) => view,
            other => unreachable!("a lease for writing was asked for here, not {other:?}"),
        }
    }

    fn reads(&mut self, count: usize) -> Vec<View<'a>> {
        (0..count).map(|_| self.read()).collect()
    }

    fn writes(&mut self, count: usize) -> Vec<ViewMut<'a>> {
        (0..count).map(|_| self.write()).collect()
    }

    /// The next `count` leases, those for reading and those for writing apart.
    fn split(&mut self, count: usize) -> (Vec<View<'a>>, Vec<ViewMut<'a>>) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for lease in self.0.by_ref().take(count) {
            match lease {
                Lease::Read(view) => reads.push(view),
                Lease::Write(view) => writes.push(view),
            }
        }
        (reads, writes)
    }
}
