//! A solver: how a net is trained and tested.

use super::learning_rate::{used, warmup};
use super::params::{params, spec_file};
use super::{LearningRate, NetSpec, NetState, Phase, Warmup, resolve};
use crate::group::Share;
use crate::prototxt::{self, Reader, Result, Warning, choices};
use cudnn_layers::update::{Larc, Method, Regularization, Rule};
use std::path::{Path, PathBuf};

choices! {
    Regularization: "L1" = L1, "L2" = L2;
}

params! {
    /// A solver file.
    SolverSpec(solver, file: &Path)
        // They only choose among implementations, or ask for more output than there is here.
        ignores [solver_mode device_id debug_info snapshot_diff layer_wise_reduce]
        first {
            refuse_other_policies(solver)?;
            let (train_net, tests) = nets(solver, file)?;
        } {
        file: PathBuf { file.to_owned() }; "The file it was read from"
        train_net: NetSource { train_net }; "The net that is trained"
        train_state: NetState { NetState::phase(Phase::Train).merged(&mut solver.message("train_state")?)? };
            "The state it is built for"
        tests: Vec<TestSpec> { tests }; "The nets that test it"
        test_interval: usize = 0,
            tests.is_empty() || test_interval > 0 => "at least 1 where there is a test";
            "Iterations between two tests; at least 1 if there is something to test"
        test_initialization: bool = true; "Test before the first iteration, too?"
        method: Method { method(solver)? }; "Whose formula updates follow"
        learning_rate: LearningRate { LearningRate::read(solver)? }; "The learning rate"
        warmup: Option<Warmup> { warmup(solver, &learning_rate)? }; "How it rises at the start, if it does"
        display: usize = 0; "Iterations between two lines of output; 0 for none"
        average_loss: usize = 1, average_loss > 0 => "at least 1";
            "Over how many iterations the loss in that line is averaged, at least 1"
        max_iter: usize = 0; "Iterations of the whole training; 0 where somebody else is to say"
        epochs: Option<usize> { None }; "Passes over the training data instead of `max_iter`, if somebody says so"
        done: [u64; 2] { [0; 2] };
            "Iterations, and samples of the training data, that a resumed training has behind it: of `epochs` the rest is left"
        iter_size: usize = 1, iter_size > 0 => "at least 1";
            "Mini-batches whose gradients are accumulated for one update, at least 1"
        momentum: f32 = 0.0, (0.0..1.0).contains(&momentum) => "from 0 to below 1",
            momentum == 0.0 || !matches!(method, Method::AdaGrad | Method::RmsProp)
                => &format!("0 with the type {}", method_name(method));
            "Momentum, Adam's β1, from 0 to below 1"
        momentum2: f32 { momentum2(solver, method)? }; "Adam's β2, RMSProp's rms_decay, from 0 to below 1"
        delta: f32 { used::<Option<_>>(solver, "delta", divides(method))?.unwrap_or(1e-8) }, delta > 0.0 => "above 0";
            "What keeps denominators above 0"
        larc: Option<Larc> { larc(solver)? }; "A rate of each parameter's own"
        weight_decay: f32 = 0.0, weight_decay >= 0.0 => "from 0"; "λ, from 0"
        regularization "regularization_type": Regularization = Regularization::L2,
            method != Method::AdamW || regularization == Regularization::L2 => "L2 with the type AdamW";
            "The norm of the weights that λ multiplies"
        clip_gradients: Option<f32> { clip_gradients(solver)? };
            "Gradients whose global L2 norm is above this are scaled down to it"
        snapshot: SnapshotSpec { SnapshotSpec::read(solver, &file)? }; "When and where snapshots are written"
        weights: Vec<PathBuf> {
            let given: Vec<String> = solver.list("weights")?;
            given.iter().flat_map(|files| files.split(',')).map(|one| resolve(&file, one.trim())).collect()
        };
            "Files of weights that it starts from, copied by the names of layers"
        // Caffe's -1, and with it any negative number, asks for a new seed in each run.
        random_seed: Option<u64> { solver.get::<i64>("random_seed")?.and_then(|seed| u64::try_from(seed).ok()) };
            "Seed of everything random; if not given, each run differs"
        share: Share { Share::default() }; "One of how many ranks this is, whose gradients are averaged"
        warnings: Vec<Warning> { Vec::new() }; "What the file says without effect"
    }

    /// When and where a solver writes snapshots.
    // They are safetensors here.
    SnapshotSpec(solver, file: &Path) ignores [snapshot_format] {
        interval "snapshot": usize = 0; "Iterations between two snapshots; 0 for none before the end"
        prefix: PathBuf {
            let prefix: Option<String> = solver.get("snapshot_prefix")?;
            prefix.map_or_else(|| file.with_extension(""), PathBuf::from)
        };
            "How their paths start, in the current directory; by default the solver file's path without its extension"
        after_train "snapshot_after_train": bool = true; "Write one at the end?"
    }
}

spec_file!(SolverSpec, "the solver");

impl SolverSpec {
    /// The learning rate of iteration `iteration`, the first being 0.
    pub fn rate(&self, iteration: u64) -> f32 {
        let iteration = iteration as usize;
        match self.warmup {
            Some(warmup) if iteration < warmup.interval => {
                warmup.rate(iteration, self.learning_rate.base_lr).max(self.learning_rate.min_lr)
            }
            _ => self.learning_rate.rate(iteration, self.max_iter),
        }
    }

    /// What the updates of all iterations have in common.
    pub fn rule(&self) -> Rule {
        let &Self { method, momentum, momentum2, delta, regularization, larc, .. } = self;
        // The gradients of ranks are added up for their mean, which is what Caffe clips.
        let ranks = self.share.ranks;
        let (clip, mini_batches) =
            (self.clip_gradients.map(|clip| clip * ranks as f32), self.iter_size * ranks);
        Rule { method, momentum, momentum2, delta, regularization, clip, mini_batches, larc }
    }
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
    pub fn load(&self) -> Result<NetSpec> {
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

impl SnapshotSpec {
    /// Whether any are written.
    pub fn is_wanted(&self) -> bool {
        self.interval > 0 || self.after_train
    }
}

/// The net that a solver trains, and the tests: every `test_iter` is one, first of the nets that are for testing only, then
/// of the one for both.
fn nets(solver: &mut Reader<'_>, file: &Path) -> Result<(NetSource, Vec<TestSpec>)> {
    let both = sources(solver, file, "net_param", "net")?;
    let train = sources(solver, file, "train_net_param", "train_net")?;
    let [train] = &[&both[..], &train[..]].concat()[..] else {
        let message = "exactly one of net, net_param, train_net and train_net_param must be given";
        return Err(solver.error_at("net", message));
    };
    let for_tests = sources(solver, file, "test_net_param", "test_net")?;
    let iterations: Vec<usize> = solver.list("test_iter")?;
    solver.check("test_iter", !iterations.contains(&0), "at least 1")?;
    let states = solver.read_all("test_state", |own| NetState::phase(Phase::Test).merged(own))?;
    let (given, nets) = (iterations.len(), for_tests.len());
    let are_enough = given == nets || given > nets && !both.is_empty();
    let message = format!("test_iter is given {given} times, but there are {nets} nets to test");
    solver.ensure("test_iter", are_enough, message)?;
    let message = format!("test_state is given {} times, but test_iter {given} times", states.len());
    solver.ensure("test_state", states.is_empty() || states.len() == given, message)?;
    let nets = for_tests.iter().chain(both.iter().cycle());
    let states = states.into_iter().chain(std::iter::repeat(NetState::phase(Phase::Test)));
    let tests = iterations.into_iter().zip(nets.zip(states));
    let tests = tests.map(|(iterations, (net, state))| TestSpec { net: net.clone(), state, iterations });
    Ok((train.clone(), tests.collect()))
}

/// The nets in the messages `inline` and in the files that `named` names.
fn sources(solver: &mut Reader<'_>, file: &Path, inline: &str, named: &str) -> Result<Vec<NetSource>> {
    let mut nets =
        solver.read_all(inline, |net| Ok(NetSource::Inline(Box::new(NetSpec::read(net, file)?))))?;
    nets.extend(solver.list::<String>(named)?.iter().map(|path| NetSource::File(resolve(file, path))));
    Ok(nets)
}

const METHODS: [(&str, Method); 7] = [
    ("SGD", Method::Sgd),
    ("Nesterov", Method::Nesterov),
    ("AdaGrad", Method::AdaGrad),
    ("RMSProp", Method::RmsProp),
    ("AdaDelta", Method::AdaDelta),
    ("Adam", Method::Adam),
    ("AdamW", Method::AdamW),
];

/// The method, as a solver file spells it.
pub(crate) fn method_name(method: Method) -> &'static str {
    METHODS.iter().find(|(_, other)| *other == method).expect("a name for each").0
}

fn method(solver: &mut Reader<'_>) -> Result<Method> {
    let names = METHODS.map(|(name, _)| name);
    // The notation of 2014.
    let old = names.map(str::to_uppercase);
    let old = solver.word("solver_type", &old.each_ref().map(String::as_str))?;
    let new = solver.word("type", &names)?;
    solver.ensure("solver_type", old.and(new).is_none(), "type says it already: give one of them")?;
    Ok(METHODS[new.or(old).unwrap_or(0)].1)
}

/// Whether updates are divided by something that `delta` keeps above 0.
fn divides(method: Method) -> bool {
    !matches!(method, Method::Sgd | Method::Nesterov)
}

fn momentum2(solver: &mut Reader<'_>, method: Method) -> Result<f32> {
    let (name, default) = if method == Method::RmsProp { ("rms_decay", 0.99) } else { ("momentum2", 0.999) };
    let is_used = matches!(method, Method::RmsProp | Method::Adam | Method::AdamW);
    let momentum2 = used::<Option<f32>>(solver, name, is_used)?.unwrap_or(default);
    solver.check(name, (0.0..1.0).contains(&momentum2), "from 0 to below 1").map(|()| momentum2)
}

/// The fields of NVIDIA's branch, with what they meant up to its version 0.17.0.
fn larc(solver: &mut Reader<'_>) -> Result<Option<Larc>> {
    if !solver.get_or("larc", false)? {
        return Ok(None);
    }
    let clips = solver.word("larc_policy", &["scale", "clip"])? == Some(1);
    let eta = solver.get_or("larc_eta", 1e-3)?;
    solver.check("larc_eta", eta > 0.0, "above 0")?;
    let is_turbo = solver.get_or("larc_turbo", false)?;
    solver.check("larc_turbo", !is_turbo, "false; the other update is not supported")?;
    Ok(Some(Larc { eta, clips }))
}

/// Refuses momentum and weight decay that change as a training goes on, as in NVIDIA's branch, and Intel's own rates of
/// layers.
fn refuse_other_policies(solver: &mut Reader<'_>) -> Result<()> {
    for policy in ["momentum_policy", "weight_decay_policy"] {
        let fixed = solver.get_or(policy, "fixed".to_owned())? == "fixed";
        solver.check(policy, fixed, "fixed; the other policies are not supported")?;
    }
    let is_auto = solver.get_or("local_lr_auto", false)?;
    solver.check("local_lr_auto", !is_auto, "false; rates of each layer's own are larc's here")
}

fn clip_gradients(solver: &mut Reader<'_>) -> Result<Option<f32>> {
    let limit = solver.get_or("clip_gradients", -1.0)?;
    // Caffe takes any negative number for "do not clip"; 0 would keep the net from learning anything.
    solver.check("clip_gradients", limit != 0.0, "above 0, or -1 not to clip")?;
    Ok((limit > 0.0).then_some(limit))
}
