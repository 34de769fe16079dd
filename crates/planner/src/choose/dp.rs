//! The dynamic programme over micro-batch sizes.
//!
//! The paper's recurrence for the fastest configuration of b samples within the limit M is
//!
//! ```text
//! T(0) = 0,    T(b) = min over sizes s <= b of  T(b - s) + t(s),    t(s) = fastest algorithm at s within M
//! ```
//!
//! and its recurrence for the desirable set D(b) joins D(b - s) with the micro-configurations of s for every s, point
//! by point. Both follow here from one observation: taking the micro-configurations *by rising workspace* and letting
//! each one improve T in place (b rising, so that it may be used many times) leaves, after every step, exactly the T of
//! the limit reached so far. Noting T(N) whenever it falls gives the whole desirable set, whose last point within M is
//! WR's answer. That costs one pass over T per micro-configuration, where joining sets costs their product: a thousand samples
//! under `all` take milliseconds.
//!
//! An algorithm may do part of its work once for all its micro-batches (the transform of a filter): a fixed cost F,
//! paid if the algorithm is used at all, and a variable one for each micro-batch. Which algorithms' fixed costs are
//! paid is one of 2^n cases for n algorithms that share; in each the recurrence is as before on variable costs, with
//! those algorithms and the ones that share nothing. The fastest of all `T(N) + ΣF` is the answer, for every limit.

use crate::model::{Algorithm, Bytes, Configuration, DesirableSet, Measurement, Run, faster};
use std::{borrow::Cow, cmp::Reverse, collections::BTreeMap};

/// At most so many algorithms of a kernel share work in a plan, as n of them make 2^n cases. Beyond, those that share
/// least are taken to share nothing.
const MOST_SHARING: usize = 6;

/// The fastest coverings of 1..=N samples under a workspace limit that only rises.
struct Sweep<'a> {
    /// By rising workspace, then falling size.
    micros: Vec<Cow<'a, Measurement>>,
    /// One for each set of algorithms whose fixed costs are paid; the first pays none.
    cases: Vec<Case>,
    /// The algorithms that share, by the bit that stands for them.
    sharing: Vec<Algorithm>,
}

/// The fastest coverings if these algorithms' fixed costs are paid, and others that share are not used.
struct Case {
    /// A bit for each of the algorithms.
    algorithms: u32,
    /// Sum of their fixed costs.
    fixed_ms: f64,
    /// `best_ms[b]`: variable time of the fastest covering of b samples; infinite if there is none.
    best_ms: Vec<f64>,
    /// `last[b]`: the micro-configuration, as an index, that such a covering ends with.
    last: Vec<u32>,
}

impl Case {
    fn new(algorithms: u32, fixed: &[f64], mini_batch: u32) -> Self {
        let mut best_ms = vec![f64::INFINITY; mini_batch as usize + 1];
        best_ms[0] = 0.0;
        let paid = fixed.iter().enumerate().filter(|(bit, _)| algorithms & (1 << bit) != 0);
        Self { algorithms, fixed_ms: paid.map(|(_, ms)| ms).sum(), last: vec![0; best_ms.len()], best_ms }
    }

    /// Time of the fastest covering of the mini-batch.
    fn time_ms(&self) -> f64 {
        self.fixed_ms + self.best_ms[self.best_ms.len() - 1]
    }

    /// Lets a micro-configuration improve every covering that can end with it.
    fn admit(&mut self, index: u32, size: usize, variable_ms: f64) {
        // What smaller workspaces already do as fast never improves anything.
        if !faster(variable_ms, self.best_ms[size]) {
            return;
        }
        for samples in size..self.best_ms.len() {
            let candidate_ms = self.best_ms[samples - size] + variable_ms;
            if faster(candidate_ms, self.best_ms[samples]) {
                self.best_ms[samples] = candidate_ms;
                self.last[samples] = index;
            }
        }
    }
}

/// The desirable set of a mini-batch: every configuration that is the fastest of some workspace limit up to `limit`.
///
/// What an algorithm shares among micro-batches is the least that any of its measurements says, for all of them. Of
/// equally fast configurations it keeps the one with less workspace, then the one with the larger micro-batch; the
/// order in which measurements are given does not matter.
pub fn desirable_set<'a>(
    micros: impl IntoIterator<Item = &'a Measurement>,
    mini_batch: u32,
    limit: Bytes,
) -> DesirableSet {
    let usable = micros.into_iter().filter(|micro| (1..=mini_batch).contains(&micro.micro_batch));
    let mut sweep = Sweep::new(usable, mini_batch);
    let (mut set, mut fastest_ms) = (DesirableSet::default(), f64::INFINITY);
    for index in 0..sweep.micros.partition_point(|micro| micro.workspace <= limit) {
        sweep.admit(index);
        let workspace = |index: usize| sweep.micros.get(index).map(|micro| micro.workspace);
        // Those that need as much are admitted together.
        if workspace(index) != workspace(index + 1) && faster(sweep.fastest().time_ms(), fastest_ms) {
            fastest_ms = sweep.fastest().time_ms();
            set.points.push(sweep.configuration());
        }
    }
    set
}

impl<'a> Sweep<'a> {
    /// A sweep over `micros` for a mini-batch, before any of them is admitted.
    fn new(micros: impl Iterator<Item = &'a Measurement>, mini_batch: u32) -> Sweep<'a> {
        let mut micros: Vec<Cow<'_, Measurement>> = micros.map(Cow::Borrowed).collect();
        let (sharing, fixed) = agree(&mut micros);
        micros.sort_by(|a, b| {
            let key = |micro: &Measurement| (micro.workspace, Reverse(micro.micro_batch));
            key(a).cmp(&key(b)).then(a.time_ms.total_cmp(&b.time_ms)).then(a.algorithm.cmp(&b.algorithm))
        });
        let cases = (0..1 << sharing.len()).map(|algorithms| Case::new(algorithms, &fixed, mini_batch));
        Sweep { micros, cases: cases.collect(), sharing }
    }

    /// Lets a micro-configuration improve the cases that it may be used in.
    fn admit(&mut self, index: usize) {
        let micro = &self.micros[index];
        let shares = self.sharing.iter().position(|algorithm| *algorithm == micro.algorithm);
        let bit = shares.map_or(0, |bit| 1 << bit);
        for case in self.cases.iter_mut().filter(|case| case.algorithms & bit == bit) {
            case.admit(index as u32, micro.micro_batch as usize, micro.time_ms - micro.shared_ms);
        }
    }

    /// The case with the fastest covering; of equals the first.
    fn fastest(&self) -> &Case {
        let best = |known, case| if faster(Case::time_ms(case), Case::time_ms(known)) { case } else { known };
        self.cases.iter().reduce(best).expect("there is the case in which nothing is shared")
    }

    /// The fastest configuration; there is one if its time is finite.
    fn configuration(&self) -> Configuration {
        let Case { best_ms, last, .. } = self.fastest();
        let mut pieces = Vec::new();
        let mut rest = best_ms.len() - 1;
        while rest > 0 {
            pieces.push(last[rest]);
            rest -= self.micros[last[rest] as usize].micro_batch as usize;
        }
        pieces.sort_unstable();
        Configuration::new(pieces.chunk_by(|a, b| a == b).map(|run| Run {
            count: run.len() as u32,
            micro: self.micros[run[0] as usize].clone().into_owned(),
        }))
    }
}

/// Makes every algorithm share the same with all its micro-batches, and returns those that share, with fixed costs.
fn agree(micros: &mut [Cow<'_, Measurement>]) -> (Vec<Algorithm>, Vec<f64>) {
    let mut least: BTreeMap<Algorithm, f64> = BTreeMap::new();
    for micro in micros.iter() {
        let shared_ms = least.entry(micro.algorithm.clone()).or_insert(f64::INFINITY);
        *shared_ms = shared_ms.min(micro.shared_ms);
    }
    let mut sharing: Vec<(Algorithm, f64)> = least.into_iter().filter(|&(_, ms)| ms > 0.0).collect();
    sharing.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    sharing.truncate(MOST_SHARING);
    for micro in micros {
        let known = sharing.iter().find(|(algorithm, _)| *algorithm == micro.algorithm);
        let agreed_ms = known.map_or(0.0, |&(_, ms)| ms);
        if micro.shared_ms != agreed_ms {
            micro.to_mut().shared_ms = agreed_ms;
        }
    }
    sharing.into_iter().unzip()
}
