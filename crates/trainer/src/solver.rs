//! Training: Caffe's SGD over a net, its tests and its snapshots.
//!
//! One iteration is `iter_size` times forward and backward with gradients added up, then for every parameter
//! `g = scale * dw + decay_mult * weight_decay * w`, `v = momentum * v + rate * lr_mult * g`, `w = w - v`, where `scale` is
//! 1 / `iter_size` times the factor that brings the norm of all accumulated gradients down to `clip_gradients`.

mod restore;
#[cfg(test)]
mod tests;

use crate::{
    error::NetError,
    fill::fill,
    layers::{BuildOptions, SyntheticData},
    net::{Layout, MemoryReport, Net, NetLayout, run::Iteration},
    planning::{Planning, Records},
    prototxt,
    snapshot::SnapshotError,
    spec::{NetSource, NetSpec, NetState, Regularization, SolverSpec},
};
use cudnn_layers::{conv::ProfileOptions, sgd};
use planner::{Plan, PlanOptions, Progress};
use std::collections::{HashMap, VecDeque};
use tensor::{Accumulate, Arena, Device, Shape};
use thiserror::Error;

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
    /// Made-up images in the place of the data.
    pub synthetic: Option<SyntheticData>,
    /// Samples per iteration of the training net, in the place of the file's.
    pub mini_batch: Option<usize>,
    /// Seed, where the solver file gives none.
    pub seed: u64,
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
    layout: Layout,
    warnings: Vec<String>,
}

/// A training under way.
pub struct Solver {
    spec: SolverSpec,
    seed: u64,
    device: Device,
    train: Net,
    tests: Vec<Net>,
    layout: Layout,
    arena: Arena,
    iteration: u64,
    recent: VecDeque<f64>,
}

/// What one iteration said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// The iteration just done, counted from 0.
    pub iteration: u64,
    /// Its loss, the mean over `iter_size` mini-batches.
    pub loss: f64,
    /// The mean of the last `average_loss` losses.
    pub smoothed_loss: f64,
    /// The learning rate it used.
    pub rate: f32,
}

/// The mean of one output of a test net, or the sum of its elements for an output of several.
#[derive(Clone, Debug, PartialEq)]
pub struct TestOutput {
    /// The blob's name.
    pub name: String,
    /// The mean over all test mini-batches.
    pub value: f64,
    /// Its weight in the objective; 0 for what is not a loss.
    pub loss_weight: f32,
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
        let mut planning =
            Planning::new(&options.device, options.profile).with_records(options.records.clone());
        let mut nets: Vec<&mut Net> = std::iter::once(&mut train).chain(&mut tests).collect();
        planning.profile_for(&mut nets, &options.plan, progress)?;
        let plans = nets
            .into_iter()
            .map(|net| planning.install(net, &options.plan))
            .collect::<Result<Vec<_>, _>>()?;
        let nets: Vec<&Net> = std::iter::once(&train).chain(&tests).collect();
        let layout = Layout::new(&nets, true);
        let warnings = planning.warnings().to_vec();
        Ok(Self { spec, seed, train, tests, plans, layout, warnings })
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

    /// The training net.
    pub fn net(&self) -> &Net {
        &self.train
    }

    /// The seed of everything random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Allocates the arena and gives the parameters their first values.
    pub fn start(self) -> Solver {
        let Self { spec, seed, train, tests, layout, .. } = self;
        let mut arena = Arena::new(layout.len);
        let nets = std::iter::once(&train).chain(&tests);
        for (net, layout) in nets.zip(&layout.nets) {
            initialize(net, layout, &mut arena, seed);
        }
        let device = train.device().clone();
        Solver { spec, seed, device, train, tests, layout, arena, iteration: 0, recent: VecDeque::new() }
    }
}

/// Gives the parameters of `net` their first values. Parameters that nets share get the same from each.
pub fn initialize(net: &Net, layout: &NetLayout, arena: &mut Arena, seed: u64) {
    for (param, spans) in net.graph().params.iter().zip(&layout.params) {
        let declaration = &param.declaration;
        let mut values = arena.view_mut(spans.data);
        fill(values.host(), &declaration.shape, declaration.filler, seed, &param.name);
    }
}

/// The nets of a solver share parameters by name: those of one name must have one shape.
fn check_shared<'a>(nets: impl Iterator<Item = &'a Net>) -> Result<(), NetError> {
    let mut known: HashMap<&str, &Shape> = HashMap::new();
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

    /// The values of parameter `name`, as in `conv1.0`.
    pub fn parameter(&self, name: &str) -> Option<&[f32]> {
        let params = self.train.graph().params.iter().zip(&self.layout.nets[0].params);
        let (_, spans) = params.into_iter().find(|(param, _)| param.name == name)?;
        Some(self.arena.view(spans.data).host())
    }

    /// One iteration: forward, backward, update.
    ///
    /// # Errors
    /// What a layer reports of its data, and a loss that is not finite.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let iteration = self.iteration;
        let rate = self.spec.learning_rate.rate(iteration as usize);
        let device = self.device.clone();
        let Device::Cpu(cpu) = &device;
        let loss = cpu.run(|| -> Result<f64, TrainError> {
            let loss = self.gradients()?;
            if !loss.is_finite() {
                return Err(TrainError::Diverged { loss, iteration });
            }
            self.update(rate);
            Ok(loss)
        })?;
        self.iteration += 1;
        self.recent.push_back(loss);
        if self.recent.len() > self.spec.average_loss {
            self.recent.pop_front();
        }
        let smoothed_loss = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
        Ok(StepReport { iteration, loss, smoothed_loss, rate })
    }

    /// Adds up the gradients of `iter_size` mini-batches and returns their mean loss.
    fn gradients(&mut self) -> Result<f64, TrainError> {
        let (layout, parts) = (&self.layout.nets[0], self.spec.iter_size as u64);
        let mut loss = 0.0;
        for part in 0..parts {
            let accumulate = if part == 0 { Accumulate::Replace } else { Accumulate::Add };
            // Each mini-batch has a number of its own, so that each draws its own dropout masks.
            let iteration = Iteration { number: self.iteration * parts + part, accumulate };
            self.train.forward(layout, &mut self.arena, iteration, |_, _| ())?;
            loss += self.train.loss(layout, &self.arena);
            self.train.backward(layout, &mut self.arena, iteration, |_, _| ())?;
        }
        Ok(loss / parts as f64)
    }

    fn update(&mut self, rate: f32) {
        let spec = &self.spec;
        let gradient_scale = self.clipping() / spec.iter_size as f32;
        let params = self.train.graph().params.iter().zip(&self.layout.nets[0].params);
        for (param, spans) in params.filter(|(param, _)| param.trained) {
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
            let (diff, history) = (spans.diff.expect("trained"), spans.history.expect("trained by a solver"));
            update_parameter(&self.device, &update, &mut self.arena, [diff, history, spans.data]);
        }
    }

    /// The factor that brings the norm of all gradients down to `clip_gradients`; 1 if it is below.
    fn clipping(&self) -> f32 {
        let Some(limit) = self.spec.clip_gradients else { return 1.0 };
        let diffs = self.layout.nets[0].params.iter().filter_map(|spans| spans.diff);
        let squares: f64 = diffs.map(|span| sgd::sum_of_squares(&self.device, self.arena.view(span))).sum();
        let norm = squares.sqrt();
        if norm > f64::from(limit) { (f64::from(limit) / norm) as f32 } else { 1.0 }
    }

    /// Runs the tests of test net `index`: the mean of every output.
    ///
    /// # Errors
    /// What a layer reports of its data.
    pub fn test(&mut self, index: usize) -> Result<Vec<TestOutput>, TrainError> {
        let iterations = self.spec.tests[index].iterations;
        let (net, layout) = (&mut self.tests[index], &self.layout.nets[index + 1]);
        let device = self.device.clone();
        let Device::Cpu(cpu) = &device;
        Ok(cpu.run(|| test(net, layout, &mut self.arena, iterations))?)
    }
}

/// Runs `iterations` forward passes of `net` and averages its outputs.
///
/// # Errors
/// What a layer reports of its data.
pub fn test(
    net: &mut Net,
    layout: &NetLayout,
    arena: &mut Arena,
    iterations: usize,
) -> Result<Vec<TestOutput>, NetError> {
    let mut sums = vec![0.0; net.outputs().count()];
    for number in 0..iterations as u64 {
        net.forward(layout, arena, Iteration { number, accumulate: Accumulate::Replace }, |_, _| ())?;
        for (sum, output) in sums.iter_mut().zip(net.outputs()) {
            let values = arena.view(layout.data[output.value]).host();
            *sum += values.iter().map(|&value| f64::from(value)).sum::<f64>();
        }
    }
    let means = sums.into_iter().map(|sum| sum / iterations as f64);
    let outputs = net.outputs().zip(means);
    Ok(outputs
        .map(|(output, value)| TestOutput {
            name: output.name.to_owned(),
            value,
            loss_weight: output.loss_weight,
        })
        .collect())
}

/// Updates one parameter: its gradient, history and values lie in `arena`.
pub(crate) fn update_parameter(
    device: &Device,
    update: &sgd::Update,
    arena: &mut Arena,
    [diff, history, data]: [tensor::Span; 3],
) {
    use tensor::{Access, Lease};
    let requests = [(diff, Access::Read), (history, Access::Write), (data, Access::Write)];
    let leases = arena.lease(&requests).expect("gradient, history and weights lie apart");
    let [Lease::Read(dw), Lease::Write(v), Lease::Write(w)] =
        <[Lease<'_>; 3]>::try_from(leases).expect("three requests")
    else {
        unreachable!("leases come in the order of the requests")
    };
    sgd::update(device, update, dw, v, w);
}
