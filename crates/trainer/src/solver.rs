//! Training: Caffe's SGD over a net, its tests and its snapshots.
//!
//! One iteration is `iter_size` times forward and backward with gradients added up, then for every parameter
//! `g = scale * dw + decay_mult * weight_decay * w`, `v = momentum * v + rate * lr_mult * g`, `w = w - v`, where `scale` is
//! 1 / `iter_size` times the factor that brings the norm of all accumulated gradients down to `clip_gradients`.

mod finished;
mod plans;
mod restore;
mod settings;
mod test_nets;
#[cfg(test)]
mod tests;

use crate::{
    error::NetError,
    fill::fill,
    layers::{BuildOptions, SyntheticData},
    net::{Layout, MemoryReport, Net, NetLayout, layout::ParamSpans, run::Iteration},
    planning::{self, PlanRecord, Records},
    prototxt,
    snapshot::SnapshotError,
    spec::{NetSource, NetSpec, NetState, Regularization, SolverSpec},
    stop::Stop,
};
use cudnn_layers::{
    conv::ProfileOptions,
    sgd::{self, ParamUpdate},
};
use planner::{Plan, PlanOptions, Progress};
use serde::Serialize;
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, VecDeque},
};
use tensor::{Accumulate, Arena, Device, TensorType, View, cuda::CudaError};
use thiserror::Error;

pub use plans::PlanOrigin;
pub use settings::Changes;
pub use test_nets::{TestOutput, add, mean, outputs};

/// What a user decides of a training besides the solver file.
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Where it runs.
    pub device: Device,
    /// How convolutions are planned.
    pub plan: PlanOptions,
    /// How they are measured.
    pub profile: ProfileOptions,
    /// What was measured before.
    pub records: Records,
    /// Synthetic images instead of the data.
    pub synthetic: Option<SyntheticData>,
    /// Samples per iteration of the training net, in the place of the file's.
    pub mini_batch: Option<usize>,
    /// Seed, where the solver file gives none.
    pub seed: u64,
    /// The plans of the snapshot that the training is to go on from. A net whose plan fits is not measured.
    pub recorded: Option<PlanRecord>,
    /// What ends measuring early.
    pub stop: Stop,
}

/// Why a training could not start or go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A net or solver file.
    #[error(transparent)]
    Spec(#[from] prototxt::Error),
    /// A net.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The loss is no longer a number.
    #[error(
        "the loss is {loss} at iteration {iteration}: the training has diverged (a lower base_lr may help)"
    )]
    Diverged {
        /// The loss.
        loss: f64,
        /// The iteration.
        iteration: u64,
    },
}

/// Nets built, planned and laid out, but nothing allocated: what a run will need can be shown first.
pub struct Prepared {
    spec: SolverSpec,
    seed: u64,
    train: Net,
    tests: Vec<Net>,
    plans: Vec<Plan>,
    origin: PlanOrigin,
    layout: Layout,
    warnings: Vec<String>,
    settings: BTreeMap<String, String>,
}

/// A training under way.
pub struct Solver {
    spec: SolverSpec,
    seed: u64,
    device: Device,
    train: Net,
    tests: Vec<Net>,
    plans: PlanRecord,
    layout: Layout,
    arena: Arena,
    iteration: u64,
    recent: VecDeque<f64>,
    settings: BTreeMap<String, String>,
    finished: finished::Finished,
}

/// What one iteration said.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// The iteration just done, counted from 0.
    pub iteration: u64,
    /// Its loss, the mean over `iter_size` mini-batches.
    pub loss: f64,
    /// The mean of the last `average_loss` losses.
    pub smoothed_loss: f64,
    /// The learning rate it used.
    #[serde(rename = "lr")]
    pub rate: f32,
}

impl Prepared {
    /// Builds the nets of `spec`, measures and plans their convolutions, and lays everything out.
    ///
    /// # Errors
    /// [`TrainError`] for files and nets that do not fit, and limits that cannot be met.
    pub fn new(
        spec: SolverSpec,
        options: &TrainOptions,
        progress: impl FnMut(Progress<'_>),
    ) -> Result<Self, TrainError> {
        let seed = spec.random_seed.unwrap_or(options.seed);
        let build = BuildOptions { device: options.device.clone(), seed, synthetic: options.synthetic };
        let train_spec = net_spec(&spec.train_net, &spec.train_state, options.mini_batch)?;
        let mut train = Net::new(&train_spec, &build, true)?;
        let mut tests = Vec::new();
        for test in &spec.tests {
            tests.push(Net::new(&net_spec(&test.net, &test.state, None)?, &build, false)?);
        }
        check_shared(std::iter::once(&train).chain(&tests))?;
        let mut nets: Vec<&mut Net> = std::iter::once(&mut train).chain(&mut tests).collect();
        let (plans, origin, warnings) = plans::install(&mut nets, options, progress)?;
        let nets: Vec<&Net> = std::iter::once(&train).chain(&tests).collect();
        let layout = Layout::new(&nets, true);
        let settings = settings::settings(&spec, &train_spec, &train);
        Ok(Self { spec, seed, train, tests, plans, origin, layout, warnings, settings })
    }

    /// The memory that the run will take.
    pub fn memory(&self) -> &MemoryReport {
        &self.layout.report
    }

    /// The training net's plan, then those of the test nets.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// What went wrong with the database of measurements, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Where the first of them comes from.
    pub fn plan_origin(&self) -> &PlanOrigin {
        &self.origin
    }

    /// The training net.
    pub fn net(&self) -> &Net {
        &self.train
    }

    /// The nets of its tests.
    pub fn tests(&self) -> &[Net] {
        &self.tests
    }

    /// The seed of everything random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Allocates the arena and gives the parameters their first values.
    ///
    /// # Errors
    /// A GPU has not that much memory left.
    pub fn start(self) -> Result<Solver, TrainError> {
        let Self { spec, seed, train, tests, plans, layout, settings, .. } = self;
        let mut arena = Arena::on(train.device(), layout.len).map_err(NetError::from)?;
        let nets = std::iter::once(&train).chain(&tests);
        for (net, layout) in nets.zip(&layout.nets) {
            initialize(net, layout, &mut arena, seed)?;
        }
        let device = train.device().clone();
        let plans = PlanRecord { device: planning::identity(&device), plans };
        let (iteration, recent, finished) = (0, VecDeque::new(), Default::default());
        let mut solver = Solver {
            spec,
            seed,
            device,
            train,
            tests,
            plans,
            layout,
            arena,
            iteration,
            recent,
            settings,
            finished,
        };
        solver.note_finished()?;
        Ok(solver)
    }
}

/// Gives the parameters of `net` their first values. Parameters that nets share get the same from each.
///
/// # Errors
/// A GPU is lost.
pub fn initialize(net: &Net, layout: &NetLayout, arena: &mut Arena, seed: u64) -> Result<(), NetError> {
    for (param, spans) in net.graph().params.iter().zip(&layout.params) {
        let declaration = &param.declaration;
        arena.fill(spans.data, |values| -> Result<(), CudaError> {
            fill(values, &declaration.shape, declaration.filler, seed, &param.name);
            Ok(())
        })?;
    }
    Ok(())
}

/// The nets of a solver share parameters by name: those of one name must have one shape.
fn check_shared<'a>(nets: impl Iterator<Item = &'a Net>) -> Result<(), NetError> {
    let mut known: HashMap<&str, &TensorType> = HashMap::new();
    for net in nets {
        for param in &net.graph().params {
            let shape = &param.declaration.shape;
            let first = *known.entry(&param.name).or_insert(shape);
            if first != shape {
                return Err(NetError::Net {
                    net: format!("{} ({})", net.name(), net.phase()),
                    message: format!(
                        "parameter '{}' has the shape {shape}, but {first} in the net that is trained",
                        param.name
                    ),
                });
            }
        }
    }
    Ok(())
}

fn net_spec(source: &NetSource, state: &NetState, mini_batch: Option<usize>) -> Result<NetSpec, TrainError> {
    let mut spec = source.load()?.for_state(state);
    if let Some(samples) = mini_batch {
        spec.set_mini_batch(samples);
    }
    Ok(spec)
}

impl Solver {
    /// What the solver file says.
    pub fn spec(&self) -> &SolverSpec {
        &self.spec
    }

    /// Completed iterations.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// The values of parameter `name`, as in `conv1.0`; `None` if there is none of that name, or the device is lost.
    pub fn parameter(&self, name: &str) -> Option<Cow<'_, [f32]>> {
        let params = self.train.graph().params.iter().zip(&self.layout.nets[0].params);
        let (_, spans) = params.into_iter().find(|(param, _)| param.name == name)?;
        self.arena.read(spans.data).ok()
    }

    /// One iteration: forward, backward, update.
    ///
    /// # Errors
    /// As [`Solver::step_unless`].
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        Ok(self.step_unless(&Stop::default())?.expect("nobody asks to stop"))
    }

    /// As [`Solver::step`]; `None` if `stop` was requested between its `iter_size` mini-batches. Whatever keeps an iteration
    /// from being finished, it is given up: everything is as it was after the one before (and before the tests between the
    /// two), so that a snapshot can be written from which training goes on as if nothing had happened.
    ///
    /// # Errors
    /// What a layer reports of its data, and a loss that is not finite.
    pub fn step_unless(&mut self, stop: &Stop) -> Result<Option<StepReport>, TrainError> {
        let result = self.try_step(stop);
        if !matches!(result, Ok(Some(_))) {
            let given_up = self.give_up();
            // What came first is what matters: a GPU that is lost says so twice.
            return result.and_then(|_| Ok(given_up.map(|()| None)?));
        }
        self.note_finished()?;
        result
    }

    fn try_step(&mut self, stop: &Stop) -> Result<Option<StepReport>, TrainError> {
        let iteration = self.iteration;
        let rate = self.spec.rate(iteration);
        let device = self.device.clone();
        let loss = device.run(|| -> Result<Option<f64>, TrainError> {
            let Some(loss) = self.gradients(stop)? else { return Ok(None) };
            if !loss.is_finite() {
                return Err(TrainError::Diverged { loss, iteration });
            }
            self.update(rate);
            Ok(Some(loss))
        })?;
        let Some(loss) = loss else { return Ok(None) };
        self.iteration += 1;
        self.recent.push_back(loss);
        if self.recent.len() > self.spec.average_loss {
            self.recent.pop_front();
        }
        let smoothed_loss = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
        Ok(Some(StepReport { iteration, loss, smoothed_loss, rate }))
    }

    /// Adds up the gradients of `iter_size` mini-batches and returns their mean loss; `None` if it is stopped among them.
    fn gradients(&mut self, stop: &Stop) -> Result<Option<f64>, TrainError> {
        let (layout, parts) = (&self.layout.nets[0], self.spec.iter_size as u64);
        let mut loss = 0.0;
        for part in 0..parts {
            if part > 0 && stop.is_requested() {
                return Ok(None);
            }
            let accumulate = if part == 0 { Accumulate::Replace } else { Accumulate::Add };
            // Each mini-batch has a number of its own, so that each draws its own dropout masks.
            let iteration = Iteration { number: self.iteration * parts + part, accumulate };
            self.train.forward(layout, &mut self.arena, iteration, |_| Ok(()))?;
            loss += self.train.loss(layout, &self.arena)?;
            self.train.backward(layout, &mut self.arena, iteration, |_| Ok(()))?;
        }
        Ok(Some(loss / parts as f64))
    }

    fn update(&mut self, rate: f32) {
        let spec = &self.spec;
        let gradient_scale = self.clipping() / spec.iter_size as f32;
        let params = self.train.graph().params.iter().zip(&self.layout.nets[0].params);
        let updates = params.map(|(param, spans)| {
            let update = sgd::Update {
                rate: rate * param.lr_mult,
                momentum: spec.momentum,
                gradient_scale,
                decay: spec.weight_decay * param.decay_mult,
                regularization: match spec.regularization {
                    Regularization::L1 => sgd::Regularization::L1,
                    Regularization::L2 => sgd::Regularization::L2,
                },
            };
            (update, spans)
        });
        update_parameters(&self.device, &mut self.arena, updates);
    }

    /// The factor that brings the norm of all gradients down to `clip_gradients`; 1 if it is below.
    fn clipping(&self) -> f32 {
        let Some(limit) = self.spec.clip_gradients else { return 1.0 };
        let diffs = self.layout.nets[0].params.iter().filter_map(|spans| spans.diff);
        let diffs: Vec<View<'_>> = diffs.map(|span| self.arena.view(span)).collect();
        let norm = sgd::sum_of_squares_all(&self.device, &diffs).sqrt();
        if norm > f64::from(limit) { (f64::from(limit) / norm) as f32 } else { 1.0 }
    }
}

/// Updates every parameter that has a gradient and a history in `arena`.
pub(crate) fn update_parameters<'a>(
    device: &Device,
    arena: &mut Arena,
    updates: impl Iterator<Item = (sgd::Update, &'a ParamSpans)>,
) {
    let (mut factors, mut gradients, mut history, mut weights) = (vec![], vec![], vec![], vec![]);
    for (update, spans) in updates {
        if let (Some(dw), Some(v)) = (spans.diff, spans.history) {
            factors.push(update);
            gradients.push(dw);
            history.push(v);
            weights.push(spans.data);
        }
    }
    history.append(&mut weights);
    let leased = arena.lease_all(&gradients, &history);
    let (gradients, mut history) = leased.expect("gradients, history and weights lie apart");
    let weights = history.split_off(factors.len());
    let params = factors.into_iter().zip(gradients).zip(history.into_iter().zip(weights));
    let mut params: Vec<ParamUpdate<'_>> =
        params.map(|((update, dw), (v, w))| ParamUpdate { update, dw, v, w }).collect();
    sgd::update_all(device, &mut params);
}
