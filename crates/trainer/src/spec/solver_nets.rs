//! Which nets a solver trains and tests: one for both, or one for each, in files or in the solver file itself.

use super::{NetSpec, NetState, Phase, resolve};
use crate::prototxt::{Reader, Result};
use std::path::{Path, PathBuf};

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

/// The nets of a solver file.
pub(super) struct Nets {
    /// The net to train
    pub(super) train: NetSource,
    /// The same if it is `net` or `net_param`, which serve for testing, too
    both: Option<NetSource>,
    /// Each `test_net_param` and `test_net`
    test: Vec<NetSource>,
}

impl Nets {
    pub(super) fn read(solver: &mut Reader<'_>, file: &Path) -> Result<Self> {
        let both = sources(solver, file, "net_param", "net")?;
        let train = sources(solver, file, "train_net_param", "train_net")?;
        let [only] = &[&both[..], &train[..]].concat()[..] else {
            let message = "exactly one of net, net_param, train_net and train_net_param must be given";
            return Err(solver.error_at("net", message));
        };
        let test = sources(solver, file, "test_net_param", "test_net")?;
        Ok(Self { train: only.clone(), both: both.into_iter().next(), test })
    }

    /// The tests: every `test_iter` is one, first of the nets that are for testing only, then of the one for both.
    pub(super) fn tests(&self, solver: &mut Reader<'_>) -> Result<Vec<TestSpec>> {
        let iterations: Vec<usize> = solver.list("test_iter")?;
        solver.check("test_iter", !iterations.contains(&0), "at least 1")?;
        let states = solver.messages("test_state")?;
        let (given, nets) = (iterations.len(), self.test.len());
        if given < nets || (given > nets && self.both.is_none()) {
            let message = format!("test_iter is given {given} times, but there are {nets} nets to test");
            return Err(solver.error_at("test_iter", message));
        }
        if !states.is_empty() && states.len() != given {
            let message = format!("test_state is given {} times, but test_iter {given} times", states.len());
            return Err(solver.error_at("test_state", message));
        }
        let nets = self.test.iter().chain(self.both.iter().cycle());
        let states = states.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let tests = iterations.into_iter().zip(nets.zip(states)).map(|(iterations, (net, own))| {
            Ok(TestSpec { net: net.clone(), state: NetState::phase(Phase::Test).merged(own)?, iterations })
        });
        tests.collect()
    }
}

/// The nets in the messages `inline` and in the files that `named` names.
fn sources(solver: &mut Reader<'_>, file: &Path, inline: &str, named: &str) -> Result<Vec<NetSource>> {
    let mut nets =
        solver.read_all(inline, |net| Ok(NetSource::Inline(Box::new(NetSpec::read(net, file)?))))?;
    nets.extend(solver.list::<String>(named)?.iter().map(|path| NetSource::File(resolve(file, path))));
    Ok(nets)
}
