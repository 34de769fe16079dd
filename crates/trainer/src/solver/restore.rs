//! Snapshots of a training, and going on from one bit by bit.

use super::{Solver, TrainError};
use crate::Net;
use crate::snapshot::{
    NamedTensor, SnapshotError, SolverState, Tensors, fingerprint, load_solver_state, load_weights,
    save_solver_state, save_tensors, state_path, weights_path,
};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use tensor::{Span, cuda::CudaError};

const SOLVER_TYPE: &str = "SGD";

/// As [`NamedTensor`], with elements that may have come from a GPU.
type HostTensor<'a> = (&'a str, &'a [usize], Cow<'a, [f32]>);

fn borrowed<'a>(tensors: &'a [HostTensor<'_>]) -> Vec<NamedTensor<'a>> {
    tensors.iter().map(|(name, dims, values)| (*name, *dims, &**values)).collect()
}

impl Solver {
    /// Writes weights and solver state of this iteration; returns the path of the state.
    ///
    /// # Errors
    /// A file that cannot be written; nothing half-written is left.
    pub fn snapshot(&self) -> Result<PathBuf, SnapshotError> {
        let prefix = &self.spec.snapshot.prefix;
        let (weights, state) = (weights_path(prefix, self.iteration), state_path(prefix, self.iteration));
        let metadata = BTreeMap::from([
            ("net".to_owned(), self.train.name().to_owned()),
            ("iteration".to_owned(), self.iteration.to_string()),
        ]);
        let tensors = self.tensors(|spans| Some(spans.data))?;
        let checksum = save_tensors(&weights, &borrowed(&tensors), &metadata)?;
        let file_name = weights.file_name().map(|name| name.to_string_lossy().into_owned());
        let solver_state = SolverState {
            iteration: self.iteration,
            net: self.train.name().to_owned(),
            solver_type: SOLVER_TYPE.to_owned(),
            parameters: self.fingerprint(),
            weights: file_name.unwrap_or_default(),
            weights_checksum: checksum,
            random_seed: self.seed,
            data_positions: positions(&self.train, &self.tests),
            counters: BTreeMap::new(),
            settings: Some(self.settings.clone()),
        };
        let history = self.tensors(|spans| spans.history)?;
        save_solver_state(&state, &solver_state, &self.plans, &borrowed(&history))?;
        Ok(state)
    }

    /// Goes on from a snapshot's solver state and the weights beside it. What has changed since then, such as a data layer of
    /// another name, is [`Prepared::changes_since`](super::Prepared::changes_since)'s to say.
    ///
    /// # Errors
    /// Files that are missing, damaged, of another net or of another seed; then nothing has changed.
    pub fn restore(&mut self, path: &Path) -> Result<(), TrainError> {
        let (state, history) = load_solver_state(path)?;
        let weights = load_weights(&path.with_file_name(&state.weights))?;
        state.check(path, &self.fingerprint(), SOLVER_TYPE, &weights)?;
        weights.check(self.shapes(|spans| Some(spans.data)))?;
        history.check(self.shapes(|spans| spans.history))?;
        self.check_seed(path, state.random_seed)?;
        self.load(&weights, |spans| Some(spans.data))?;
        self.load(&history, |spans| spans.history)?;
        self.iteration = state.iteration;
        self.recent.clear();
        for (name, &position) in &state.data_positions {
            match name.rsplit_once('/') {
                Some((layer, "TRAIN")) => self.train.set_position(layer, position),
                Some((layer, test)) => {
                    let index = test.strip_prefix("TEST").and_then(|index| index.parse::<usize>().ok());
                    if let Some(net) = index.and_then(|index| self.tests.get_mut(index)) {
                        net.set_position(layer, position);
                    }
                }
                None => {}
            }
        }
        Ok(self.note_finished()?)
    }

    /// Layers draw from the seed they were built with: with another one, dropout and the order of the data would differ.
    fn check_seed(&self, path: &Path, seed: u64) -> Result<(), SnapshotError> {
        if seed == self.seed {
            return Ok(());
        }
        let reason = format!("it was trained with the seed {seed}, but this run has {}", self.seed);
        Err(SnapshotError::Resume { path: path.to_owned(), reason })
    }

    /// Starts from the weights of another training of this very net.
    ///
    /// # Errors
    /// A file that is missing or damaged, holds a solver state, or does not have exactly this net's parameters.
    pub fn load_weights(&mut self, path: &Path) -> Result<(), TrainError> {
        let weights = load_weights(path)?;
        weights.check(self.shapes(|spans| Some(spans.data)))?;
        self.load(&weights, |spans| Some(spans.data))?;
        Ok(self.note_finished()?)
    }

    fn tensors(
        &self,
        which: fn(&crate::net::layout::ParamSpans) -> Option<Span>,
    ) -> Result<Vec<HostTensor<'_>>, CudaError> {
        let params = self.train.graph().params.iter().zip(&self.layout.nets[0].params);
        let tensors = params.filter_map(|(param, spans)| {
            let values = self.arena.read(which(spans)?);
            Some(values.map(|values| (param.name.as_str(), param.declaration.shape.dims(), values)))
        });
        tensors.collect()
    }

    fn shapes(
        &self,
        which: fn(&crate::net::layout::ParamSpans) -> Option<Span>,
    ) -> impl Iterator<Item = (&str, &[usize])> {
        let params = self.train.graph().params.iter().zip(&self.layout.nets[0].params);
        let kept = params.filter(move |(_, spans)| which(spans).is_some());
        kept.map(|(param, _)| (param.name.as_str(), param.declaration.shape.dims()))
    }

    fn load(
        &mut self,
        tensors: &Tensors,
        which: fn(&crate::net::layout::ParamSpans) -> Option<Span>,
    ) -> Result<(), SnapshotError> {
        for (param, spans) in self.train.graph().params.iter().zip(&self.layout.nets[0].params) {
            if let Some(span) = which(spans) {
                let dims = param.declaration.shape.dims();
                self.arena.fill(span, |values| tensors.copy_to(&param.name, dims, values))?;
            }
        }
        Ok(())
    }

    fn fingerprint(&self) -> String {
        fingerprint(self.shapes(|spans| Some(spans.data)))
    }
}

/// Samples consumed, keyed by layer and net: `data/TRAIN`, `data/TEST0`.
pub(super) fn positions(train: &Net, tests: &[Net]) -> BTreeMap<String, u64> {
    let train = train.positions().map(|(name, position)| (format!("{name}/TRAIN"), position));
    let tests = tests.iter().enumerate().flat_map(|(index, net)| {
        net.positions().map(move |(name, position)| (format!("{name}/TEST{index}"), position))
    });
    train.chain(tests).collect()
}
