//! Snapshots of a training, and resuming from one bit by bit; and going back to the end of the last finished iteration,
//! where one cannot be finished.

use super::{Solver, Training};
use crate::error::{NetError, Result};
use crate::net::{Net, graph::Param, layout::ParamSpans};
use crate::snapshot::{
    CLASSES, CopiedWeights, NamedTensor, SolverState, Tensors, Weights, fingerprint, load_solver_state,
    save_solver_state, save_tensors, state_path, weights_path,
};
use crate::{run::Execution, spec::method_name};
use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fs};
use tensor::{Device, Format, Span, cuda::CudaError};

/// What forward passes change that outlives them, as it was between two iterations.
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// Of all data layers.
    pub(super) positions: BTreeMap<String, u64>,
    /// The statistics of batch norm, one after the other, if they are kept.
    statistics: Vec<u8>,
}

impl Solver {
    /// Writes weights and solver state of this iteration, with the places of data before the tests that were made since:
    /// a training makes them again when it resumes. Returns the path of the state.
    ///
    /// # Errors
    /// A file that cannot be written; nothing half-written is left.
    pub fn snapshot(&self) -> Result<PathBuf> {
        let Training { spec, seed, settings } = &self.training;
        let prefix = &spec.snapshot.prefix;
        let (weights, state) = (weights_path(prefix, self.iteration), state_path(prefix, self.iteration));
        let mut metadata = BTreeMap::from([
            ("net".to_owned(), self.net().name().to_owned()),
            ("iteration".to_owned(), self.iteration.to_string()),
        ]);
        let mut names = self.net().loaders().map(|(_, loader)| loader.dataset().class_names());
        if let Some(names) = names.find(|names| !names.is_empty()) {
            let names = serde_json::to_string(&names).expect("strings always have a JSON form");
            metadata.insert(CLASSES.to_owned(), names);
        }
        let tensors = self.running.weights()?;
        let is_new = !weights.exists();
        let checksum = save_tensors(&weights, &tensors, &metadata)?;
        let file_name = weights.file_name().map(|name| name.to_string_lossy().into_owned());
        let solver_state = SolverState {
            iteration: self.iteration,
            net: self.net().name().to_owned(),
            solver_type: method_name(spec.method).to_owned(),
            parameters: self.net().fingerprint(),
            weights: file_name.unwrap_or_default(),
            weights_checksum: checksum,
            random_seed: *seed,
            data_positions: self.finished.positions.clone(),
            counters: self.counters_to_save(),
            settings: settings.clone(),
        };
        let history = self.running.tensors(|spans| spans.history)?;
        let saved = save_solver_state(&state, &solver_state, &self.plans, &history);
        // Weights are of no use alone.
        saved.inspect_err(|_| drop(is_new.then(|| fs::remove_file(&weights))))?;
        Ok(state)
    }

    /// Resumes from a snapshot's solver state and the weights beside it. What has changed since then, such as a data
    /// layer of another name, is [`Training::resume_notes`](super::Training::resume_notes)'s to say.
    ///
    /// # Errors
    /// Files that are missing, damaged, of another net or of another seed; then nothing has changed.
    pub fn restore(&mut self, path: &Path) -> Result<()> {
        let (state, history) = load_solver_state(path)?;
        let weights = state.weights(path)?;
        self.training.check(self.net(), path, &state)?;
        let kept = self.running.kept(|spans| Some(spans.data));
        weights.check(kept.map(|(_, param, dims, _)| (&*param.name, dims)))?;
        // What is not trained now may have a history there, and what is may have none, which begins at 0.
        let with_history = self.running.params().filter_map(|(param, spans)| {
            let saved = history.shape(&param.name)?.to_vec();
            Some((&*param.name, spans.history.map_or(saved, |span| dims(param, spans, span))))
        });
        history.check(with_history)?;
        self.running.load(&weights, |spans| Some(spans.data))?;
        self.running.load(&history, |spans| spans.history)?;
        self.iteration = state.iteration;
        self.restore_counters(&state.counters);
        set_positions(&mut self.running.nets, &state.data_positions);
        self.note_finished()
    }

    /// Starts from weights of other trainings, which are copied by the names of layers.
    ///
    /// # Errors
    /// As [`Execution::load_weights`].
    pub fn load_weights(&mut self, weights: &Weights) -> Result<CopiedWeights> {
        let copied = self.running.load_weights(weights)?;
        self.note_finished()?;
        Ok(copied)
    }

    /// Notes that an iteration is finished.
    pub(super) fn note_finished(&mut self) -> Result<()> {
        let positions = positions(self.running.nets());
        let mut statistics = Vec::new();
        for span in self.statistics() {
            statistics.extend_from_slice(&self.running.arena.read(span)?);
        }
        self.finished = Finished { positions, statistics };
        Ok(())
    }

    /// Rolls back to the last finished iteration: gives up mini-batches of the next one, and tests. Training that
    /// continues from here, or from a snapshot, is as if they had never begun.
    ///
    /// On a GPU without `iter_size` there is one exception: the statistics of batch norm have seen the mini-batch that
    /// failed. To copy them in each iteration would slow down all trainings for the sake of those that fail.
    pub(super) fn give_up(&mut self) -> Result<()> {
        set_positions(&mut self.running.nets, &self.finished.positions);
        let mut kept = &self.finished.statistics[..];
        for span in self.statistics() {
            let (values, rest) = kept.split_at(span.len);
            kept = rest;
            self.running.arena.repeat(span, values)?;
        }
        Ok(self.running.forget()?)
    }

    /// Where the training net keeps what its layers change themselves, as bytes; nothing if that is not kept. On a
    /// processor they are a few numbers to copy. From a GPU each of them takes as long as a layer: too long, unless an
    /// iteration has several mini-batches.
    fn statistics(&self) -> Vec<Span> {
        let is_kept = matches!(self.running.device(), Device::Cpu(_)) || self.spec().iter_size > 1;
        let params = self.running.params().filter(|(param, _)| is_kept && !param.declaration.learned);
        params.map(|(_, spans)| spans.data.tagged(Format::U8)).collect()
    }
}

impl Net {
    fn fingerprint(&self) -> String {
        fingerprint(self.graph().params.iter().map(|param| (&*param.name, param.declaration.shape.dims())))
    }
}

impl Training {
    /// Verifies that a training of `net` can resume from `state`, which was read from `path`, as far as can be told
    /// without the weights. Layers draw from the seed they were built with: with another one, dropout and the order of
    /// the data would differ.
    ///
    /// # Errors
    /// [`NetError::Refused`], naming what differs.
    pub fn check(&self, net: &Net, path: &Path, state: &SolverState) -> Result<()> {
        let SolverState { solver_type, random_seed, .. } = state;
        let (own_type, own_seed) = (method_name(self.spec.method), self.seed);
        let reason = if state.parameters != net.fingerprint() {
            format!("it is of the net {:?}, whose parameters differ from this net's", state.net)
        } else if solver_type != own_type {
            format!("it is of a solver of type {solver_type}, not {own_type}")
        } else if *random_seed != own_seed {
            format!("it was trained with the seed {random_seed}, but this run has {own_seed}")
        } else {
            return Ok(());
        };
        Err(NetError::refused(path, format!("cannot be resumed: {reason}")))
    }
}

/// Which of a parameter's spans, if it has that.
type Which = fn(&ParamSpans) -> Option<Span>;

impl Execution {
    /// The parameters of its first net: names, shapes and values, as [`save_tensors`] writes them. Those that are changed
    /// come back by [`Weights::of`] and [`Execution::load_weights`].
    ///
    /// # Errors
    /// A GPU that is lost.
    pub fn weights(&self) -> Result<Vec<NamedTensor<'_>>> {
        Ok(self.tensors(|spans| Some(spans.data))?)
    }

    fn tensors(&self, which: Which) -> Result<Vec<NamedTensor<'_>>, CudaError> {
        let kept = self.kept(which);
        kept.map(|(_, param, dims, span)| Ok((param.name.clone(), dims, self.read_param(param, span)?)))
            .collect()
    }

    /// The parameters of its first net and where they lie.
    pub(super) fn params(&self) -> impl Iterator<Item = (&Param, &ParamSpans)> {
        self.nets()[0].graph().params.iter().zip(&self.layout().nets[0].params)
    }

    /// Those that there are, by number, with their shapes and places.
    fn kept(&self, which: Which) -> impl Iterator<Item = (usize, &Param, Vec<usize>, Span)> {
        self.params().enumerate().filter_map(move |(id, (param, spans))| {
            let span = which(spans)?;
            Some((id, param, dims(param, spans, span), span))
        })
    }

    /// What `tensors` has not becomes 0.
    fn load(&mut self, tensors: &Tensors, which: Which) -> Result<()> {
        let kept = self.kept(which).map(|(id, param, dims, span)| (id, param.name.clone(), dims, span));
        for (id, name, dims, span) in kept.collect::<Vec<_>>() {
            let saved = tensors.shape(&name).map(|_| tensors.bytes(&name, &dims)).transpose()?;
            self.fill_param((0, id), span, |values| match saved {
                Some(saved) => bytemuck::cast_slice_mut(values).copy_from_slice(saved),
                None => values.fill(0.0),
            })?;
        }
        Ok(())
    }
}

/// The shape of what lies at `span`, the parameter's data or the solver's history of it: of two numbers for each
/// weight, those of one kind come first.
fn dims(param: &Param, spans: &ParamSpans, span: Span) -> Vec<usize> {
    let own = param.declaration.shape.dims();
    match span.len.checked_div(spans.data.len).unwrap_or(1) {
        1 => own.to_vec(),
        kinds => [&[kinds], own].concat(),
    }
}

/// Samples consumed, keyed by layer and net: `data/TRAIN`, `data/TEST0`.
pub(super) fn positions(nets: &[Net]) -> BTreeMap<String, u64> {
    let of_net = |(index, net): (usize, &Net)| -> Vec<(String, u64)> {
        net.loaders().map(|(name, data)| (format!("{name}{}", suffix(index)), data.position())).collect()
    };
    nets.iter().enumerate().flat_map(of_net).collect()
}

/// Continues reading the data of `nets` at these positions.
pub(super) fn set_positions(nets: &mut [Net], positions: &BTreeMap<String, u64>) {
    for (index, net) in nets.iter_mut().enumerate() {
        for (name, &position) in positions {
            if let Some(layer) = name.strip_suffix(&suffix(index)) {
                net.set_position(layer, position);
            }
        }
    }
}

/// What tells the layers of net number `net` of a training from those of the others.
fn suffix(net: usize) -> String {
    net.checked_sub(1).map_or_else(|| "/TRAIN".to_owned(), |test| format!("/TEST{test}"))
}
