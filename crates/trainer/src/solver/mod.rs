//! Training: Caffe's solvers over a net, its tests and its snapshots.
//!
//! One iteration is `iter_size` times forward and backward with gradients added up, then for every parameter an
//! [update](cudnn_layers::update).

mod classes;
mod restore;
mod settings;
mod test_nets;
#[cfg(test)]
mod tests;
mod watch;

use crate::error::{NetError, Result};
use crate::group::{RankError, Share};
use crate::planning::{self, PlanRecord};
use crate::run::{Execution, MiniBatch, NetRun, Update};
use crate::spec::{NetSpec, SolverSpec};
use crate::{layers::BuildOptions, net::Net, stop::Stop};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use tensor::{Accumulate, TensorType};

pub use classes::{Confusion, best_classes};
pub use test_nets::TestOutput;

/// What a solver file says of a training whose nets are built.
pub struct Training {
    /// What the solver file says, with the end that `epochs` have.
    pub spec: SolverSpec,
    /// The seed of everything random.
    pub seed: u64,
    /// Digests of all that its numbers depend on, by name, but for seed, plans and device.
    pub settings: BTreeMap<String, String>,
}

/// A training under way.
pub struct Solver {
    training: Training,
    running: Execution,
    plans: PlanRecord,
    iteration: u64,
    recent: VecDeque<f64>,
    finished: restore::Finished,
    /// What is counted besides iterations, by name; kept in snapshots.
    counters: BTreeMap<String, u64>,
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

impl Training {
    /// Builds the net that is trained, and after it those that test. The seed of `options` is that of a file that gives
    /// none. Of several ranks each trains on its share, and the first tests. With `epochs` the training is as long as so
    /// many passes over the data take.
    ///
    /// # Errors
    /// Files and nets that do not fit.
    pub fn build(mut spec: SolverSpec, options: &BuildOptions) -> Result<(Self, Vec<Net>)> {
        let seed = spec.random_seed.unwrap_or(options.seed);
        let options = BuildOptions { seed, ..options.clone() };
        let train_spec = spec.train_net.load()?.for_state(&spec.train_state);
        let train_spec = NetSpec { share: spec.share, ..train_spec };
        let mut nets = vec![Net::new(&train_spec, &options, true)?];
        nets[0].method = spec.method;
        nets[0].keeps_gradients |= spec.iter_size > 1 || spec.clip_gradients.is_some();
        if let Some(epochs) = spec.epochs {
            let [iterations, seen] = spec.done.map(|count| count as usize);
            let left = nets[0].mini_batches(epochs, seen)?;
            spec.max_iter = iterations + left.div_ceil(spec.iter_size * spec.share.ranks);
        }
        for test in &spec.tests {
            let mut net = Net::new(&test.net.load()?.for_state(&test.state), &options, false)?;
            net.name_as(&nets[0]);
            nets.push(net);
        }
        check_shared(&nets)?;
        let settings = settings::settings(&spec, &train_spec, &nets[0]);
        Ok((Self { spec, seed, settings }, nets))
    }

    /// Begins with `run`, in which its nets are laid out with updates.
    ///
    /// # Errors
    /// They are laid out without updates, too few or not built for training; the device has not that much memory left.
    pub fn start(self, run: NetRun) -> Result<Solver> {
        let net = &run.nets()[0];
        if !run.updates || !net.is_training() {
            let lacks = if run.updates { "not built for training" } else { "laid out without updates" };
            return Err(net.error(format!("it cannot be trained, as it is {lacks}")));
        }
        if run.nets().len() <= self.spec.tests.len() {
            return Err(net.error("it cannot be tested as the solver says, as a net for that is missing"));
        }
        let schedules = run.schedules.clone();
        let running = run.start(self.seed)?;
        let device = planning::identity(running.device());
        let plans = PlanRecord { device, plans: running.plans().to_vec(), schedules };
        let (iteration, (recent, finished, counters)) = (0, Default::default());
        let mut solver = Solver { training: self, running, plans, iteration, recent, finished, counters };
        solver.note_finished()?;
        Ok(solver)
    }
}

/// The nets of a solver share parameters by name: those of one name must have one shape.
fn check_shared(nets: &[Net]) -> Result<()> {
    let mut known: HashMap<&str, &TensorType> = HashMap::new();
    for net in nets {
        for param in &net.graph().params {
            let shape = &param.declaration.shape;
            let first = *known.entry(&param.name).or_insert(shape);
            if first != shape {
                let (net, name) = (format!("{} ({})", net.name(), net.phase()), &param.name);
                let differs = format!("has the shape {shape}, but {first} in the net that is trained");
                return Err(NetError::Refused(format!("net '{net}': parameter '{name}' {differs}")));
            }
        }
    }
    Ok(())
}

impl Solver {
    /// What the solver file says.
    pub fn spec(&self) -> &SolverSpec {
        &self.training.spec
    }

    /// Completed iterations.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// What runs its nets: the one that is trained, and behind it those that test.
    pub fn execution(&self) -> &Execution {
        &self.running
    }

    /// The same, for a program that has data of its own to [put into blobs](Execution::set_blob).
    pub fn execution_mut(&mut self) -> &mut Execution {
        &mut self.running
    }

    /// The net that is trained.
    fn net(&self) -> &Net {
        &self.running.nets()[0]
    }

    /// One iteration: forward, backward, update.
    ///
    /// # Errors
    /// As [`Solver::step_unless`].
    pub fn step(&mut self) -> Result<StepReport> {
        Ok(self.step_unless(&Stop::default())?.expect("a stop that is never requested"))
    }

    /// As [`Solver::step`]; `None` if `stop` was requested between its `iter_size` mini-batches. Whatever keeps an
    /// iteration from being finished, it is given up: everything is as it was after the one before (and before the
    /// tests between the two), so that from a snapshot written now training resumes as if nothing had happened; but a
    /// GPU without `iter_size` keeps batch norm's statistics of the mini-batch.
    ///
    /// # Errors
    /// What a layer reports of its data, and a loss that is not finite.
    pub fn step_unless(&mut self, stop: &Stop) -> Result<Option<StepReport>> {
        let result = self.try_step(stop);
        if !matches!(result, Ok(Some(_))) {
            let given_up = self.give_up();
            // What came first is what matters: a GPU that is lost says so twice.
            return result.and_then(|_| given_up.map(|()| None));
        }
        self.note_finished()?;
        result
    }

    /// Does the iterations that rank 0 does, until that ends.
    ///
    /// # Errors
    /// As [`Solver::step_unless`].
    pub fn follow(&mut self) -> Result<()> {
        while !self.running.group().has_ended() {
            match self.step_unless(&Stop::default()) {
                // What it waited for was no iteration.
                Err(NetError::Rank(_)) if self.running.group().has_ended() => {}
                result => drop(result?),
            }
        }
        Ok(())
    }

    fn try_step(&mut self, stop: &Stop) -> Result<Option<StepReport>> {
        let (spec, iteration) = (&self.training.spec, self.iteration);
        let (parts, group) = (spec.iter_size as u64, self.running.group().clone());
        let (Share { rank, ranks }, rate) = (spec.share, spec.rate(iteration));
        let (rule, weight_decay) = (spec.rule(), spec.weight_decay);
        let update = Update { rule, weight_decay, rates: rule.rates(rate, iteration) };
        for part in 0..parts {
            if !group.from_leader(|| Ok::<_, RankError>(part == 0 || !stop.is_requested()))? {
                return Ok(None);
            }
            let accumulate = if part == 0 { Accumulate::Replace } else { Accumulate::Add };
            let update = (part + 1 == parts).then_some(update);
            // Each mini-batch has a number of its own, so that each draws its own dropout masks.
            let number = (iteration * parts + part) * ranks as u64 + rank as u64;
            self.running.iterate(0, MiniBatch { number, accumulate, update, observer: None })?;
        }
        let loss = self.running.state()?.loss / (parts as f64 * ranks as f64);
        if !loss.is_finite() {
            // All ranks have found that; one may know better why.
            group.sum(&mut [0.0f64])?;
            return Err(NetError::Diverged { loss, iteration });
        }
        self.iteration += 1;
        self.recent.push_back(loss);
        if self.recent.len() > self.training.spec.average_loss {
            self.recent.pop_front();
        }
        let smoothed_loss = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
        Ok(Some(StepReport { iteration, loss, smoothed_loss, rate }))
    }
}
