//! The dynamic programme over micro-batch sizes.
//!
//! The paper's recurrence for the fastest configuration of b samples within the limit M is
//!
//! ```text
//! T(0) = 0,    T(b) = min over sizes s <= b of  T(b - s) + t(s),    t(s) = fastest algorithm at s within M
//! ```
//!
//! and its recurrence for the desirable set D(b) joins D(b - s) with the micro-configurations of s for every
//! s, point by point. Both follow here from one observation: taking the micro-configurations *by rising
//! workspace* and letting each one improve T in place (b rising, so that it may be used many times) leaves,
//! after every step, exactly the T of the limit reached so far. Stopping at M gives WR's answer; noting T(N)
//! whenever it falls gives the whole desirable set. That costs one pass over T per micro-configuration, where
//! joining sets costs their product: a thousand samples under `all` take milliseconds.

use std::cmp::Reverse;

use crate::configuration::{Configuration, Run};
use crate::desirable::DesirableSet;
use crate::micro::Measurement;
use crate::units::Bytes;

/// A configuration must be faster by more than this part to replace another: sums of equal times taken in
/// another order differ in their last bits, and that must not decide.
const ROUNDING: f64 = 1e-12;

/// Whether `time_ms` is below `than_ms` by more than rounding.
pub(crate) fn faster(time_ms: f64, than_ms: f64) -> bool {
    time_ms < than_ms * (1.0 - ROUNDING)
}

/// The fastest coverings of 1..=N samples under a workspace limit that only rises.
///
/// Of equally fast configurations it keeps the one with less workspace, then the one with the larger
/// micro-batch; the order in which measurements are given does not matter.
#[derive(Clone, Debug)]
pub struct Sweep<'a> {
    /// By rising workspace, then falling size.
    micros: Vec<&'a Measurement>,
    /// How many of them the limit has admitted so far.
    admitted: usize,
    /// `best_ms[b]`: time of the fastest covering of b samples; infinite if there is none.
    best_ms: Vec<f64>,
    /// `last[b]`: the micro-configuration, as an index, that such a covering ends with.
    last: Vec<u32>,
}

impl<'a> Sweep<'a> {
    /// A sweep over `micros` for a mini-batch, before any of them is admitted.
    pub fn new(micros: impl IntoIterator<Item = &'a Measurement>, mini_batch: u32) -> Sweep<'a> {
        let usable = micros.into_iter().filter(|micro| (1..=mini_batch).contains(&micro.micro_batch));
        let mut micros: Vec<&Measurement> = usable.collect();
        micros.sort_by(|a, b| {
            let key = |micro: &Measurement| (micro.workspace, Reverse(micro.micro_batch));
            key(a).cmp(&key(b)).then(a.time_ms.total_cmp(&b.time_ms)).then(a.algorithm.cmp(&b.algorithm))
        });
        let mut best_ms = vec![f64::INFINITY; mini_batch as usize + 1];
        best_ms[0] = 0.0;
        Sweep { micros, admitted: 0, last: vec![0; best_ms.len()], best_ms }
    }

    /// Admits every micro-configuration that needs at most `limit`. A limit below an earlier one changes
    /// nothing.
    pub fn raise_limit(&mut self, limit: Bytes) {
        while self.next_workspace().is_some_and(|workspace| workspace <= limit) {
            self.admit_next();
        }
    }

    /// The least workspace of what is not admitted yet.
    pub fn next_workspace(&self) -> Option<Bytes> {
        self.micros.get(self.admitted).map(|micro| micro.workspace)
    }

    /// Time of the fastest configuration within the limit, infinite if none covers the mini-batch.
    pub fn time_ms(&self) -> f64 {
        self.best_ms.last().copied().unwrap_or(f64::INFINITY)
    }

    /// The fastest configuration within the limit.
    pub fn configuration(&self) -> Option<Configuration> {
        if !self.time_ms().is_finite() {
            return None;
        }
        let mut pieces = Vec::new();
        let mut rest = self.best_ms.len() - 1;
        while rest > 0 {
            pieces.push(self.last[rest]);
            rest -= self.micros[self.last[rest] as usize].micro_batch as usize;
        }
        pieces.sort_unstable();
        let runs = pieces
            .chunk_by(|a, b| a == b)
            .map(|run| Run { count: run.len() as u32, micro: self.micros[run[0] as usize].clone() });
        Some(Configuration::new(runs))
    }

    /// Lets the next micro-configuration improve every covering that can end with it.
    fn admit_next(&mut self) {
        let index = self.admitted;
        self.admitted += 1;
        let (size, time_ms) = (self.micros[index].micro_batch as usize, self.micros[index].time_ms);
        // What smaller workspaces already do as fast never improves anything.
        if !faster(time_ms, self.best_ms[size]) {
            return;
        }
        for samples in size..self.best_ms.len() {
            let candidate_ms = self.best_ms[samples - size] + time_ms;
            if faster(candidate_ms, self.best_ms[samples]) {
                self.best_ms[samples] = candidate_ms;
                self.last[samples] = index as u32;
            }
        }
    }
}

/// The desirable set of a mini-batch: every configuration that is the fastest of some workspace limit up to
/// `limit`.
pub fn desirable_set<'a>(
    micros: impl IntoIterator<Item = &'a Measurement>,
    mini_batch: u32,
    limit: Bytes,
) -> DesirableSet {
    let mut set = DesirableSet::new();
    collect_desirable(&mut Sweep::new(micros, mini_batch), limit, &mut set);
    set
}

/// Raises the limit of `sweep` step by step and adds each faster configuration to `set`.
pub(crate) fn collect_desirable(sweep: &mut Sweep<'_>, limit: Bytes, set: &mut DesirableSet) {
    let mut fastest_ms = sweep.time_ms();
    while let Some(workspace) = sweep.next_workspace().filter(|&workspace| workspace <= limit) {
        sweep.raise_limit(workspace);
        if sweep.time_ms() < fastest_ms {
            fastest_ms = sweep.time_ms();
            set.extend_with(sweep.configuration());
        }
    }
}
