//! Divisions of the mini-batch into micro-batches, and the Pareto front of them in (time, workspace).

use super::{measurement::Measurement, units::Bytes};
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, fmt, ops::Deref};

/// A time and the workspace that it takes: of a configuration, of a choice for a kernel under WD, of a curve's step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Time in milliseconds, finite.
    pub time_ms: f64,
    /// Bytes of workspace; in a [`Curve`](crate::Curve) the limit at which the time falls.
    pub workspace: Bytes,
}

/// A time must be shorter by more than this part to count as faster: sums of equal times taken in another order differ
/// in their last bits, and that must not decide.
const ROUNDING: f64 = 1e-12;

/// Whether `time_ms` is below `than_ms` by more than rounding.
pub(crate) fn faster(time_ms: f64, than_ms: f64) -> bool {
    time_ms < than_ms * (1.0 - ROUNDING)
}

/// `count` equal micro-configurations in a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// How many of them.
    pub count: u32,
    /// The repeated micro-configuration.
    pub micro: Measurement,
}

/// An ordered list of micro-configurations that covers the mini-batch, kept as runs of equal ones, the largest
/// micro-batch first. Its time is the sum over the micro-batches, where of those with one algorithm only the first does
/// what they share; its workspace is the maximum, as they run one after the other in the same memory.
///
/// Prints as `4x60 FFT_TILING + 16 IMPLICIT_GEMM`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Configuration {
    runs: Vec<Run>,
}

impl Configuration {
    /// The configuration made of these runs; equal micro-configurations are joined and empty runs left out.
    pub fn new(runs: impl IntoIterator<Item = Run>) -> Self {
        let mut runs: Vec<Run> = runs.into_iter().filter(|run| run.count > 0).collect();
        runs.sort_by(|Run { micro: a, .. }, Run { micro: b, .. }| {
            order(a).cmp(&order(b)).then(a.time_ms.total_cmp(&b.time_ms))
        });
        runs.dedup_by(|next, kept| {
            let equal = next.micro == kept.micro;
            kept.count = kept.count.saturating_add(if equal { next.count } else { 0 });
            equal
        });
        Self { runs }
    }

    /// The runs, largest micro-batch first.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Sum of the times of all micro-batches, without what an algorithm has done for an earlier one already.
    pub fn time_ms(&self) -> f64 {
        let all_ms: f64 = self.runs.iter().map(|run| f64::from(run.count) * run.micro.time_ms).sum();
        // What micro-batches after the first of each algorithm save.
        let saved = |(index, run): (usize, &Run)| {
            let before = &self.runs[..index];
            let is_first = before.iter().all(|other| other.micro.algorithm != run.micro.algorithm);
            f64::from(run.count.saturating_sub(u32::from(is_first))) * run.micro.shared_ms
        };
        let sharing = self.runs.iter().enumerate().filter(|(_, run)| run.micro.shared_ms > 0.0);
        all_ms - sharing.map(saved).sum::<f64>()
    }

    /// The largest workspace of any micro-batch: what must be there to run the configuration.
    pub fn workspace(&self) -> Bytes {
        self.runs.iter().map(|run| run.micro.workspace).max().unwrap_or_default()
    }

    /// Samples covered, or the largest number if they are more.
    pub fn mini_batch(&self) -> u32 {
        let samples = |run: &Run| run.count.saturating_mul(run.micro.micro_batch);
        self.runs.iter().map(samples).fold(0, u32::saturating_add)
    }

    /// The least accurate class among its micro-configurations.
    pub fn max_error(&self) -> f32 {
        self.runs.iter().map(|run| run.micro.max_error).fold(0.0, f32::max)
    }

    /// Whether every algorithm in it is deterministic.
    pub fn deterministic(&self) -> bool {
        self.runs.iter().all(|run| run.micro.deterministic)
    }

    /// Its time and workspace.
    pub fn cost(&self) -> Cost {
        Cost { time_ms: self.time_ms(), workspace: self.workspace() }
    }
}

/// Running order: large micro-batches first, so that what is left over comes last.
fn order(micro: &Measurement) -> (Reverse<u32>, &str, Bytes) {
    (Reverse(micro.micro_batch), micro.algorithm.as_str(), micro.workspace)
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |Run { count, micro: Measurement { micro_batch, algorithm, .. } }: &Run| match count {
            1 => format!("{micro_batch} {algorithm}"),
            _ => format!("{count}x{micro_batch} {algorithm}"),
        };
        f.pad(&self.runs.iter().map(part).collect::<Vec<_>>().join(" + "))
    }
}

/// Configurations of one kernel of which none is as good as another in both time and workspace (the paper's desirable
/// set). Ordered by rising workspace, hence by strictly falling time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DesirableSet {
    pub(crate) points: Vec<Configuration>,
}

impl DesirableSet {
    /// The fastest configuration whose workspace is at most `limit`.
    pub fn fastest_within(&self, limit: Bytes) -> Option<&Configuration> {
        self.points[..self.partition_point(|point| point.workspace() <= limit)].last()
    }
}

/// The configurations by rising workspace and falling time.
impl Deref for DesirableSet {
    type Target = [Configuration];

    fn deref(&self) -> &[Configuration] {
        &self.points
    }
}
