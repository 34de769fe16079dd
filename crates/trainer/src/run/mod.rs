//! A run of nets: laid out before anything is allocated, then executed by one loop over a schedule, whatever for.

mod measure;
mod net_run;
mod reduce;
mod slab;
#[cfg(test)]
mod tests;

use crate::error::{NetError, Result};
use crate::net::graph::{Graph, Param, Value};
use crate::net::layout::{from_nchw, in_nchw};
use crate::net::{Net, RunLayout};
use crate::{fill::fill, group::Group};
use cudnn_layers::copy::convert;
use cudnn_layers::update::{self, Loss, ParamUpdate, StepRates, StepState};
use memory::{Action, Place};
use planner::Plan;
use reduce::{Reduction, STATE};
use slab::Slab;
use std::{borrow::Cow, ops::Range};
use tensor::cuda::{CudaError, CudaGraph};
use tensor::{Accumulate, Arena, Bf16, Device, ElementType, Setting, Span};

pub use measure::LayerTimes;
pub(crate) use measure::measure;
pub use net_run::NetRun;

/// What one mini-batch is run for.
pub struct MiniBatch<'a> {
    /// Which mini-batch it is, over iterations, `iter_size` and ranks: with the seed, what random layers draw from.
    pub number: u64,
    /// Whether gradients of parameters and the loss add to those of earlier mini-batches (`iter_size`).
    pub accumulate: Accumulate,
    /// How the parameters are updated at its end, if they are. A GPU records the work again for another rule or weight
    /// decay, but not for another rate.
    pub update: Option<Update>,
    /// Told of every action once it is launched. With an observer kernels and copies are timed, and nothing is replayed.
    pub observer: Option<&'a mut (dyn FnMut(Action) -> Result<(), CudaError> + Send)>,
}

impl MiniBatch<'_> {
    /// Mini-batch `number`, without update or observer.
    pub fn new(number: u64) -> Self {
        Self { number, accumulate: Accumulate::Replace, update: None, observer: None }
    }
}

/// How parameters are updated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// What all iterations have in common.
    pub rule: update::Rule,
    /// Weight decay, before a parameter's own multiplier.
    pub weight_decay: f32,
    /// The learning rate of this iteration, likewise, and what else it has of its own.
    pub rates: StepRates,
}

/// What recorded work depends on: the net, whether it adds to gradients, and the rule and weight decay of its update.
type RecordingKey = (usize, Accumulate, Option<(update::Rule, f32)>);

/// A run that has begun.
pub struct Execution {
    /// Recorded work. `None` for what has run once, so that all that it loads is there. First of all fields, as it ends
    /// before the memory that it works on.
    recordings: Vec<(RecordingKey, Option<CudaGraph>)>,
    /// Ends after what was recorded of it.
    reduction: Reduction,
    device: Device,
    pub(crate) nets: Vec<Net>,
    plans: Vec<Plan>,
    layout: RunLayout,
    number: Setting<u64>,
    rates: Setting<StepRates>,
    /// A [`StepState`] in the device's memory.
    state: Arena,
    pub(crate) slab: Slab,
    pub(crate) arena: Arena,
}

impl Execution {
    /// Gives the parameters their first values. Those that nets share are filled as the first net says, which is trained:
    /// it is filled last.
    pub(crate) fn initialize(&mut self, seed: u64) -> Result<()> {
        for net in (0..self.nets.len()).rev() {
            for (id, param) in self.nets[net].graph().params.clone().into_iter().enumerate() {
                let declaration = &param.declaration;
                let span = self.layout.nets[net].params[id].data;
                self.fill_param((net, id), span, |values| {
                    fill(values, &declaration.shape, declaration.filler, seed, &param.name);
                })?;
            }
        }
        Ok(())
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The ranks that it is one of.
    pub fn group(&self) -> &Group {
        &self.reduction.group
    }

    /// Its nets.
    pub fn nets(&self) -> &[Net] {
        &self.nets
    }

    /// Their plans.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// Where everything lies.
    pub fn layout(&self) -> &RunLayout {
        &self.layout
    }

    /// The values, history or gradient of a parameter, at `span`, in the order of files: that of NCHW.
    pub(crate) fn read_param(&self, param: &Param, span: Span) -> Result<Cow<'_, [f32]>, CudaError> {
        Ok(in_nchw(self.arena.read(span)?, &param.master()))
    }

    /// Has `fill` write the values or the history of parameter `id` of net number `net`, at `span`, in NCHW.
    pub(crate) fn fill_param(
        &mut self,
        (net, id): (usize, usize),
        span: Span,
        fill: impl FnOnce(&mut [f32]),
    ) -> Result<(), CudaError> {
        let master = self.nets[net].graph().params[id].master();
        self.arena.fill(span, |values| {
            fill(values);
            from_nchw(values, &master);
        })?;
        let spans = &self.layout.nets[net].params[id];
        if let Some(copy) = spans.copy.filter(|_| span == spans.data) {
            let ([values], [copy]) = self.arena.lease([span], [copy]).expect("they lie apart");
            convert(&self.device, &[values.len()], values, copy.replaced());
        }
        Ok(())
    }

    /// Puts `values`, in the order of NCHW, into the blob `name` of net number `net`, for all iterations until it is called
    /// again: a top of an `Input` layer, or of another that fills its tops once. From now on it fills none of them, and
    /// those that it has not filled hold zeros.
    ///
    /// # Errors
    /// There is no blob of this name that a layer fills once, or it has another number of elements; a GPU that is lost.
    pub fn set_blob(&mut self, net: usize, name: &str, values: &[f32]) -> Result<()> {
        let (of, layout) = (&mut self.nets[net], &self.layout.nets[net]);
        let Graph { nodes, values: blobs, .. } = of.graph();
        let is_it = |blob: &Value| blob.name == name && nodes[blob.producer].declaration.constant;
        let none = || of.error(format!("'{name}' is no blob that a layer fills once, as Input does"));
        let id = blobs.iter().position(is_it).ok_or_else(none)?;
        let (node, count, given) = (blobs[id].producer, blobs[id].shape.count(), values.len());
        if given != count {
            return Err(of.error(format!("blob '{name}' has {count} elements, but {given} are given")));
        }
        of.filled[node] = true;
        Ok(self.arena.fill(layout.data(id, layout.end()), |to| to.copy_from_slice(values))?)
    }

    /// Gives the nets back, to be run otherwise.
    pub fn into_nets(self) -> Vec<Net> {
        self.nets
    }

    /// Runs net number `net` on its next mini-batch: forward, and if it is trained backward, and updates the parameters
    /// if asked to. A GPU's work is launched, not waited for; from the third time on all but the data is replayed.
    ///
    /// # Errors
    /// What a layer reports of its data, with the layer's name, and what the observer returns; an update of a net that is
    /// laid out without.
    ///
    /// # Panics
    /// If there is no such net; if gradients have to be kept (to clip or to add them up, or of several ranks), and the
    /// net was built not to keep them.
    pub fn iterate(&mut self, net: usize, mut batch: MiniBatch<'_>) -> Result<()> {
        self.group().check()?;
        let mut actions = self.layout.nets[net].places.schedule.actions.iter().rev();
        if batch.update.is_some() && !actions.any(|action| matches!(action, Action::Update(..))) {
            return Err(self.nets[net].error("it cannot be updated, as it is laid out without updates"));
        }
        self.begin(&batch)?;
        let device = self.device.clone();
        device.run(|| {
            let sources = self.sources(net);
            let rest = sources..self.layout.nets[net].places.schedule.actions.len();
            // The host has its part in bringing the data, and none in what follows.
            self.perform(net, 0..sources, &mut batch)?;
            self.replay(net, &[rest], &mut batch)
        })
    }

    /// How many actions of net number `net` bring data: the first ones.
    fn sources(&self, net: usize) -> usize {
        let nodes = &self.nets[net].graph().nodes;
        let is_source =
            |action: &&Action| matches!(action, Action::Forward(node) if nodes[*node].bottoms.is_empty());
        self.layout.nets[net].places.schedule.actions.iter().take_while(is_source).count()
    }

    /// Does these actions, part by part. A GPU that nobody observes does them as they are the first time, records them the
    /// second time, and replays them from then on.
    fn replay(&mut self, net: usize, parts: &[Range<usize>], batch: &mut MiniBatch<'_>) -> Result<()> {
        let device = self.device.clone();
        let perform = |running: &mut Self, batch: &mut MiniBatch<'_>| {
            parts.iter().try_for_each(|part| running.perform(net, part.clone(), batch))
        };
        let Device::Cuda(cuda) = &device else { return perform(self, batch) };
        if batch.observer.is_some() {
            return perform(self, batch);
        }
        let key = (net, batch.accumulate, batch.update.map(|update| (update.rule, update.weight_decay)));
        let Some(known) = self.recordings.iter().position(|(recorded, _)| *recorded == key) else {
            perform(self, batch)?;
            self.recordings.push((key, None));
            return Ok(());
        };
        let mut graph = match self.recordings.swap_remove(known) {
            (_, Some(graph)) => graph,
            (_, None) => cuda.record(|| perform(self, batch))?,
        };
        // SAFETY: the recorded work is that of nets, arena, settings and slab of `self`, which are as they were when it
        // was recorded and are dropped after it, which waits for the device; all that reads or fills them does so in
        // the same stream.
        unsafe { graph.replay() }?;
        self.recordings.push((key, Some(graph)));
        Ok(())
    }

    /// Sets the values that recorded work reads again in each mini-batch.
    pub(crate) fn begin(&mut self, batch: &MiniBatch<'_>) -> Result<(), CudaError> {
        self.number.set(batch.number)?;
        batch.update.map_or(Ok(()), |update| self.rates.set(update.rates))
    }

    /// Does these actions of net number `net`.
    fn perform(&mut self, net: usize, part: Range<usize>, batch: &mut MiniBatch<'_>) -> Result<()> {
        self.slab.fork()?;
        let done = part.clone().try_for_each(|at| -> Result<()> {
            self.act(net, at, part.start, batch)?;
            if let Some(observer) = &mut batch.observer {
                observer(self.layout.nets[net].places.schedule.actions[at])?;
            }
            Ok(())
        });
        // After a failure, too: what runs next must not meet copies that are under way.
        let joined = self.slab.join();
        done?;
        Ok(joined?)
    }

    /// Does action number `at`; those before `start` are done.
    pub(crate) fn act(&mut self, net: usize, at: usize, start: usize, batch: &MiniBatch<'_>) -> Result<()> {
        let layout = &self.layout.nets[net];
        let schedule = &layout.places.schedule;
        let action = schedule.actions[at];
        // What came before `start` was done before the copy streams began.
        let others = schedule.waits[at].iter().filter(|&&other| other >= start);
        let timed = batch.observer.is_some();
        self.slab.wait((at, action), others.map(|&other| (net, other)), timed)?;
        match action {
            Action::Forward(_) | Action::Backward(_) | Action::Recompute(_) => {
                let iteration = (batch.number, self.number.view());
                self.nets[net].compute(layout, &mut self.arena, at, iteration, batch.accumulate, timed)?;
            }
            Action::Offload(buffer) | Action::Prefetch(buffer) => {
                let place = |place| layout.find(buffer, place, at).expect("a copy has both its places");
                let [device, host] = [Place::Device, Place::Host].map(place);
                self.slab.copy(&mut self.arena, action, (device, host))?;
            }
            Action::Update(first, end) => self.update(net, first..end, batch)?,
            Action::Hold(_) => {}
        }
        Ok(self.slab.note((net, at), action, timed)?)
    }

    /// Adds the loss of a mini-batch to those before it, and if it is the last, updates `params`, whose gradients are
    /// complete: those at the end first. Where gradients are needed all at once, all parameters wait for them.
    fn update(&mut self, net: usize, params: Range<usize>, batch: &MiniBatch<'_>) -> Result<()> {
        let Self { nets, layout, arena, reduction, state, .. } = self;
        let (net, layout) = (&nets[net], &layout.nets[net]);
        let is_first = params.end == layout.params.len();
        if is_first {
            let view =
                |(value, weight): (_, f32)| (arena.view(layout.data(value, layout.end())), weight.into());
            let losses: Vec<Loss<'_>> = net.losses().map(view).collect();
            update::add_losses(&self.device, &losses, state.view_mut(STATE), batch.accumulate);
        }
        let Some(Update { rule, weight_decay, .. }) = batch.update else { return Ok(()) };
        reduction.add_up(arena, &layout.params[params.clone()])?;
        let at_once = reduction.group.share().ranks > 1 || rule.clip.is_some();
        let are_kept = layout.places.schedule.keeps_gradients;
        assert!(are_kept || !at_once && batch.accumulate == Accumulate::Replace, "gradients are not kept");
        let params = match at_once {
            true if params.start > 0 => return Ok(()),
            true => 0..layout.params.len(),
            false => params,
        };
        reduction.finish(&self.device, state)?;
        let params = net.graph().params[params.clone()].iter().zip(&layout.params[params]);
        let (mut trained, mut gradients, mut written) = (vec![], vec![], vec![]);
        for (param, spans) in params {
            let (Some(dw), Some(history)) = (spans.diff, spans.history) else { continue };
            trained.push(param);
            gradients.push(dw);
            written.extend([history, spans.data, spans.copy.unwrap_or_default()]);
        }
        let leased = arena.lease_all(&gradients, &written);
        let (gradients, written) = leased.expect("gradients, history and weights lie apart");
        let mut written = written.into_iter();
        let mut next = || written.next().expect("three for each gradient");
        let params = trained.iter().zip(gradients).map(|(param, dw)| {
            let (lr_mult, decay) = (param.lr_mult, weight_decay * param.decay_mult);
            ParamUpdate { lr_mult, decay, dw, history: next(), w: next(), copy: next() }
        });
        let mut params: Vec<ParamUpdate<'_>> = params.collect();
        let (rates, state) = (self.rates.view(), self.state.view_mut(STATE));
        update::update_all(&self.device, &rule, rates, state, &mut params, at_once || is_first);
        Ok(())
    }

    /// What the device knows of the iteration, once it is done without a failure or a label out of range.
    pub(crate) fn state(&self) -> Result<StepState> {
        let state = self.state.read::<u8>(STATE);
        self.nets[0].check()?;
        Ok(bytemuck::pod_read_unaligned(&state?))
    }

    /// Forgets a loss that was not finite, which had stopped updates.
    pub(crate) fn forget(&mut self) -> Result<(), CudaError> {
        self.state.set(self.state.all(), 0)
    }

    /// The objective of net number `net` after an iteration: the weighted sum of the losses.
    ///
    /// # Errors
    /// As [`Net::check`].
    pub fn loss(&self, net: usize) -> Result<f64> {
        let sum = |value| Ok::<f64, NetError>(self.values(net, value)?.iter().sum());
        let losses = self.nets[net].losses().map(|(value, weight)| Ok(f64::from(weight) * sum(value)?));
        // A sum of nothing is -0.
        losses.chain([Ok(0.0)]).sum()
    }

    /// The elements of an output of net number `net` after an iteration, in the order of NCHW.
    pub(crate) fn values(&self, net: usize, value: usize) -> Result<Vec<f64>> {
        let (net, layout) = (&self.nets[net], &self.layout.nets[net]);
        net.check()?;
        let (span, shape) = (layout.data(value, layout.end()), &net.graph().values[value].shape);
        let values: Vec<f64> = match shape.format().dtype {
            ElementType::Bf16 => self.arena.read(span)?.iter().map(|&x: &Bf16| f32::from(x).into()).collect(),
            _ => self.arena.read(span)?.iter().map(|&x: &f32| x.into()).collect(),
        };
        Ok(in_nchw(values.into(), shape).into_owned())
    }
}
