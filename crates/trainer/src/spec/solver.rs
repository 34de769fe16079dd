//! A solver: how a net is trained and tested.

use std::path::{Path, PathBuf};

use super::solver_nets::Nets;
use super::{LearningRate, NetSpec, NetState, Phase};
use crate::prototxt::{self, Error, Reader, Source, Warning};

/// A solver file.
#[derive(Debug, Clone, PartialEq)]
pub struct SolverSpec {
    /// The file it was read from
    pub file: PathBuf,
    /// The net that is trained
    pub train_net: NetSource,
    /// The state it is built for
    pub train_state: NetState,
    /// The nets that test it
    pub tests: Vec<TestSpec>,
    /// Iterations between two tests; at least 1 if there is something to test
    pub test_interval: usize,
    /// Test before the first iteration, too?
    pub test_initialization: bool,
    /// The learning rate
    pub learning_rate: LearningRate,
    /// Iterations between two lines of output; 0 for none
    pub display: usize,
    /// Over how many iterations the loss in that line is averaged, at least 1
    pub average_loss: usize,
    /// Iterations of the whole training
    pub max_iter: usize,
    /// Mini-batches whose gradients are accumulated for one update, at least 1
    pub iter_size: usize,
    /// μ of the update V ← μ V + rate · gradient, from 0 to below 1
    pub momentum: f32,
    /// λ, from 0
    pub weight_decay: f32,
    /// The norm of the weights that λ multiplies
    pub regularization: Regularization,
    /// Gradients whose global L2 norm is above this are scaled down to it
    pub clip_gradients: Option<f32>,
    /// When and where snapshots are written
    pub snapshot: SnapshotSpec,
    /// Seed of everything random; if not given, each run differs
    pub random_seed: Option<u64>,
    /// What the file says without effect
    pub warnings: Vec<Warning>,
}

/// Where a solver's net stands.
#[derive(Debug, Clone, PartialEq)]
pub enum NetSource {
    /// In this file
    File(PathBuf),
    /// In the solver file
    Inline(Box<NetSpec>),
}

impl NetSource {
    /// The net, with the layers of all phases.
    ///
    /// # Errors
    /// As [`NetSpec::load`].
    pub fn load(&self) -> Result<NetSpec, Error> {
        match self {
            Self::File(path) => NetSpec::load(path),
            Self::Inline(net) => Ok(net.as_ref().clone()),
        }
    }
}

/// One of the nets that test a solver's progress.
#[derive(Debug, Clone, PartialEq)]
pub struct TestSpec {
    /// The net
    pub net: NetSource,
    /// The state it is built for
    pub state: NetState,
    /// Mini-batches per test, at least 1
    pub iterations: usize,
}

/// The regularisation that `weight_decay` multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Regularization {
    /// λ sign(w) is added to the gradient
    L1,
    /// λ w is added to the gradient
    #[default]
    L2,
}

/// When and where a solver writes snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSpec {
    /// Iterations between two snapshots; 0 for none before the end
    pub interval: usize,
    /// How their paths start, relative to the current directory; the solver file's path without its extension unless
    /// the file says otherwise
    pub prefix: PathBuf,
    /// Write one at the end?
    pub after_train: bool,
}

impl SolverSpec {
    /// Reads the solver file at `path`. The nets it names are not read yet.
    ///
    /// # Errors
    /// The file cannot be read, is not text format, or says something that cannot work; the message names file and
    /// line.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::from_message(path, &prototxt::read(path)?)
    }

    /// Reads a solver from `text`; `file` is where it came from.
    ///
    /// # Errors
    /// As [`SolverSpec::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, Error> {
        Self::from_message(file, &prototxt::parse(&file.display().to_string(), text)?)
    }

    /// The learning rate of iteration `iteration`, the first being 0.
    pub fn rate(&self, iteration: u64) -> f32 {
        self.learning_rate.rate(iteration as usize, self.max_iter)
    }

    fn from_message(file: &Path, message: &prototxt::Message) -> Result<Self, Error> {
        let source = Source::new(&file.display().to_string());
        let mut spec = Self::read(Reader::new(&source, message, "the solver".to_owned()), file)?;
        spec.warnings = source.into_warnings();
        Ok(spec)
    }

    fn read(mut solver: Reader<'_>, file: &Path) -> Result<Self, Error> {
        check_type(&mut solver)?;
        refuse_other_updates(&mut solver)?;
        ignore(&mut solver);
        let max_iter = solver.positive("max_iter")?.ok_or_else(|| solver.missing("max_iter"))?;
        let nets = Nets::read(&mut solver, file)?;
        let tests = nets.tests(&mut solver)?;
        let test_interval = solver.get_or("test_interval", 0)?;
        if !tests.is_empty() && test_interval == 0 {
            return Err(
                solver.error_at("test_interval", "test_interval must be at least 1 where there is a test")
            );
        }
        Ok(Self {
            file: file.to_owned(),
            train_net: nets.train,
            train_state: state(Phase::Train, solver.optional_message("train_state")?)?,
            tests,
            test_interval,
            test_initialization: solver.get_or("test_initialization", true)?,
            learning_rate: LearningRate::read(&mut solver)?,
            display: solver.get_or("display", 0)?,
            average_loss: solver.positive("average_loss")?.unwrap_or(1),
            max_iter,
            iter_size: solver.positive("iter_size")?.unwrap_or(1),
            momentum: momentum(&mut solver)?,
            weight_decay: weight_decay(&mut solver)?,
            regularization: regularization(&mut solver)?,
            clip_gradients: clip_gradients(&mut solver)?,
            snapshot: SnapshotSpec::read(&mut solver, file)?,
            random_seed: random_seed(&mut solver)?,
            warnings: Vec::new(),
        })
    }
}

impl SnapshotSpec {
    /// Whether any are written.
    pub fn is_wanted(&self) -> bool {
        self.interval > 0 || self.after_train
    }

    fn read(solver: &mut Reader<'_>, file: &Path) -> Result<Self, Error> {
        if solver.choice("snapshot_format", &[("BINARYPROTO", ()), ("HDF5", ())])?.is_some() {
            solver.warn(
                "snapshot_format",
                "snapshots are written as safetensors, so snapshot_format has no effect",
            );
        }
        let prefix: Option<String> = solver.get("snapshot_prefix")?;
        Ok(Self {
            interval: solver.get_or("snapshot", 0)?,
            prefix: prefix.map_or_else(|| file.with_extension(""), PathBuf::from),
            after_train: solver.get_or("snapshot_after_train", true)?,
        })
    }
}

/// The state for `phase` that the solver asks for.
pub(super) fn state(phase: Phase, own: Option<Reader<'_>>) -> Result<NetState, Error> {
    let mut state = NetState::phase(phase);
    if let Some(own) = own {
        state.merge(own)?;
    }
    Ok(state)
}

fn check_type(solver: &mut Reader<'_>) -> Result<(), Error> {
    // The second is the notation of 2014.
    for name in ["type", "solver_type"] {
        if solver.has(name) && solver.choice(name, &[("SGD", ())]).is_err() {
            return Err(solver.reject(name, "SGD; the other solvers are not supported yet"));
        }
    }
    Ok(())
}

/// Fields of NVIDIA's branch that ask for another update than V ← μ V + rate · gradient with the same μ and λ all along.
fn refuse_other_updates(solver: &mut Reader<'_>) -> Result<(), Error> {
    let larc = solver.get_or("larc", false)?;
    solver.check("larc", !larc, "false; a rate for each layer (LARC) is not supported")?;
    useless(solver, &["larc_policy", "larc_eta", "larc_turbo"], "without larc");
    for (policy, others) in [
        ("momentum_policy", &["max_momentum", "momentum_power"][..]),
        ("weight_decay_policy", &["max_weight_decay", "weight_decay_power"]),
    ] {
        let fixed = solver.get_or(policy, "fixed".to_owned())? == "fixed";
        solver.check(policy, fixed, "fixed; the other policies are not supported")?;
        useless(solver, others, &format!("while {policy} is fixed"));
    }
    Ok(())
}

/// Warns of those of `fields` that are given, as they have no effect `here`.
pub(super) fn useless(solver: &mut Reader<'_>, fields: &[&str], here: &str) {
    for field in fields.iter().filter(|field| solver.has(field)).collect::<Vec<_>>() {
        solver.ignore(&[field]);
        solver.warn(field, &format!("{field} has no effect {here}"));
    }
}

/// Fields that only choose among implementations, or ask for more output than there is here.
fn ignore(solver: &mut Reader<'_>) {
    solver.ignore(&["solver_mode", "device_id", "debug_info", "snapshot_diff", "layer_wise_reduce"]);
}

fn momentum(solver: &mut Reader<'_>) -> Result<f32, Error> {
    let momentum = solver.get_or("momentum", 0.0)?;
    solver.check("momentum", (0.0..1.0).contains(&momentum), "from 0 to below 1")?;
    Ok(momentum)
}

fn weight_decay(solver: &mut Reader<'_>) -> Result<f32, Error> {
    let decay = solver.get_or("weight_decay", 0.0)?;
    solver.check("weight_decay", f32::is_finite(decay) && decay >= 0.0, "a finite number from 0")?;
    Ok(decay)
}

fn regularization(solver: &mut Reader<'_>) -> Result<Regularization, Error> {
    let types = [("L1", Regularization::L1), ("L2", Regularization::L2)];
    Ok(solver.choice("regularization_type", &types)?.unwrap_or_default())
}

fn clip_gradients(solver: &mut Reader<'_>) -> Result<Option<f32>, Error> {
    let limit = solver.get_or("clip_gradients", -1.0)?;
    // Caffe takes any negative number for "do not clip"; 0 would keep the net from learning anything.
    solver.check("clip_gradients", !limit.is_nan() && limit != 0.0, "above 0, or -1 not to clip")?;
    Ok((limit > 0.0).then_some(limit))
}

fn random_seed(solver: &mut Reader<'_>) -> Result<Option<u64>, Error> {
    let seed: i64 = solver.get_or("random_seed", -1)?;
    // Caffe's -1, and with it any negative number, asks for a new seed in each run.
    Ok(u64::try_from(seed).ok())
}
