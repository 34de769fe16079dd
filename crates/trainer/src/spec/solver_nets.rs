//! Which nets a solver trains and tests: Caffe lets a solver name one net for both, or one for each, in files or
//! in the solver file itself.

use std::path::Path;

use super::solver::state;
use super::{NetSource, NetSpec, Phase, TestSpec};
use crate::prototxt::{Error, Reader};

/// The nets of a solver file.
pub(super) struct Nets {
    /// `net` or `net_param`, for training and testing
    both: Option<NetSource>,
    /// `train_net` or `train_net_param`
    train: Option<NetSource>,
    /// Each `test_net_param` and `test_net`
    test: Vec<NetSource>,
}

impl Nets {
    pub(super) fn read(solver: &mut Reader<'_>, file: &Path) -> Result<Self, Error> {
        let mut both = sources(solver, file, "net_param", "net")?;
        let mut train = sources(solver, file, "train_net_param", "train_net")?;
        if both.len() + train.len() != 1 {
            let message = "exactly one of net, net_param, train_net and train_net_param must be given";
            return Err(solver.error_at("net", message));
        }
        let test = sources(solver, file, "test_net_param", "test_net")?;
        Ok(Self { both: both.pop(), train: train.pop(), test })
    }

    /// The net to train.
    pub(super) fn train(&self) -> NetSource {
        let Self { both, train, .. } = self;
        train.as_ref().or(both.as_ref()).expect("Nets::read found exactly one of the two").clone()
    }

    /// The tests: every `test_iter` is one, first of the nets that are for testing only, then of the one for both.
    pub(super) fn tests(&self, solver: &mut Reader<'_>) -> Result<Vec<TestSpec>, Error> {
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
        iterations
            .into_iter()
            .zip(nets.zip(states))
            .map(|(iterations, (net, own))| {
                Ok(TestSpec { net: net.clone(), state: state(Phase::Test, own)?, iterations })
            })
            .collect()
    }
}

/// The nets in the messages `inline` and in the files that `named` names.
fn sources(solver: &mut Reader<'_>, file: &Path, inline: &str, named: &str) -> Result<Vec<NetSource>, Error> {
    let mut nets = Vec::new();
    for net in solver.messages(inline)? {
        nets.push(NetSource::Inline(Box::new(NetSpec::read(net, file)?)));
    }
    for path in solver.list::<String>(named)? {
        nets.push(NetSource::File(super::resolve(file, &path)));
    }
    Ok(nets)
}
