//! What sizes that were not measured may cost, judged by the measured sizes around them.

use crate::choose::{Plan, PlanError, PlanOptions};
use crate::model::{Algorithm, BatchSizePolicy, Bytes, Kernel, KernelId, Measurement, WdSolver};
use crate::{divide, table::CostTable};
use std::collections::BTreeMap;

/// How to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Estimate {
    /// By interpolation, for algorithms that run at both neighbours.
    Likely,
    /// The least that is possible if more samples never take less time or workspace, and never more time per sample.
    Least,
}

/// The measurements of one algorithm by rising size.
type Series<'t> = Vec<&'t Measurement>;

impl Estimate {
    /// The admitted measurements of `kernels`, and estimates at every other size up to the mini-batch.
    pub(crate) fn complete(self, table: &CostTable, kernels: &[Kernel], options: &PlanOptions) -> CostTable {
        let mut completed = CostTable::default();
        for kernel in largest(kernels).into_values() {
            let mut algorithms: BTreeMap<&Algorithm, Series<'_>> = table.series(&kernel.id);
            algorithms.values_mut().for_each(|series| series.retain(|row| options.admits(row)));
            for size in BatchSizePolicy::All.sizes(kernel.mini_batch) {
                let rows = match table.measurements(&kernel.id, size) {
                    Some(rows) => rows.iter().filter(|row| options.admits(row)).cloned().collect(),
                    None => {
                        let gap = table.gap(&kernel.id, size);
                        algorithms.values().filter_map(|series| self.row(series, gap, size)).collect()
                    }
                };
                completed
                    .insert(kernel.id, size, rows)
                    .expect("between two valid measurements lies a valid one");
            }
        }
        completed
    }

    /// One algorithm at `size`, which lies in the `gap` between two measured sizes.
    fn row(self, series: &Series<'_>, gap: (u32, u32), size: u32) -> Option<Measurement> {
        let at = |size: u32| {
            let found = series.binary_search_by_key(&size, |row| row.micro_batch);
            found.ok().map(|index| series[index])
        };
        let (below, above) = (at(gap.0), at(gap.1));
        let (time_ms, workspace) = match (self, below, above) {
            (Self::Likely, Some(below), Some(above)) => {
                let workspace = line(below, above, size, |row| row.workspace.0 as f64);
                (hull_ms(series, below, above, size), Bytes(workspace as u64))
            }
            (Self::Least, Some(below), Some(above)) => (
                least_ms(below, above, size).min(hull_ms(series, below, above, size)),
                below.workspace.min(above.workspace),
            ),
            // Where it begins or ends to run at all, only the assumptions speak.
            (Self::Least, Some(below), None) => (below.time_ms, below.workspace),
            (Self::Least, None, Some(above)) => (f64::from(size) * above.time_per_sample_ms(), Bytes::ZERO),
            (Self::Likely, _, _) | (Self::Least, None, None) => return None,
        };
        let shared = [below, above].into_iter().flatten().map(|row| row.shared_ms);
        // The larger shared time keeps this a lower bound.
        let shared_ms = shared.fold(0.0, f64::max).min(time_ms);
        Some(Measurement { micro_batch: size, time_ms, shared_ms, workspace, ..below.or(above)?.clone() })
    }
}

/// A plan to measure by: the exact method divides WD's total here, whichever solver does in the end.
pub(crate) fn plan(kernels: &[Kernel], table: &CostTable, options: &PlanOptions) -> Result<Plan, PlanError> {
    divide::plan(kernels, table, &PlanOptions { wd_solver: WdSolver::Exact, ..options.clone() })
}

/// Of the kernels of each identity one with the largest mini-batch.
pub(crate) fn largest(kernels: &[Kernel]) -> BTreeMap<KernelId, &Kernel> {
    let mut largest: BTreeMap<KernelId, &Kernel> = BTreeMap::new();
    for kernel in kernels {
        let known = largest.entry(kernel.id).or_insert(kernel);
        if kernel.mini_batch > known.mini_batch {
            *known = kernel;
        }
    }
    largest
}

/// The least time at `size` if time rises and time per sample falls from `below` to `above`, or from `above` to `below`
/// if the two contradict that.
fn least_ms(below: &Measurement, above: &Measurement, size: u32) -> f64 {
    let per_sample_ms = below.time_per_sample_ms().min(above.time_per_sample_ms());
    (f64::from(size) * per_sample_ms).max(below.time_ms.min(above.time_ms))
}

/// The lowest straight line at `size`: between its neighbours, or two other sizes from half of it to twice it. The
/// neighbours may be unlucky, such as one more than what fills whole tiles.
fn hull_ms(series: &[&Measurement], below: &Measurement, above: &Measurement, size: u32) -> f64 {
    let line_ms = |below: &Measurement, above: &Measurement| line(below, above, size, |row| row.time_ms);
    let split = series.partition_point(|row| row.micro_batch < size);
    let near_below = series[..split].iter().rev().take_while(|row| row.micro_batch >= size / 2);
    let lines = near_below.flat_map(|below| {
        let near = |row: &&&Measurement| row.micro_batch <= size.saturating_mul(2);
        series[split..].iter().take_while(near).map(move |above| line_ms(below, above))
    });
    lines.fold(line_ms(below, above), f64::min)
}

/// A cost at `size` on the straight line through two measurements.
pub(crate) fn line(
    below: &Measurement,
    above: &Measurement,
    size: u32,
    cost: impl Fn(&Measurement) -> f64,
) -> f64 {
    let samples = |row: &Measurement| f64::from(row.micro_batch);
    let part = (f64::from(size) - samples(below)) / (samples(above) - samples(below));
    cost(below) + part * (cost(above) - cost(below))
}
