//! Whether measurements can be trusted: those that a plan rests on are made again.
//!
//! A busy machine makes calls slower, never faster, and a plan picks what looks fast. So what it picked, and what it
//! nearly picked, is measured a second time; of two times the shorter counts. So is what it would pick if every size were
//! as fast as the sizes around it say: somebody may have disturbed that one. If that changes the plan, what is new in it
//! is repeated too.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::configuration::Configuration;
use crate::cost_table::CostTable;
use crate::dp::Sweep;
use crate::error::ProfileError;
use crate::estimate::{largest, line};
use crate::kernel::{Kernel, KernelId};
use crate::measuring::{Measuring, Progress, Wanted};
use crate::micro::{Algorithm, Measurement};
use crate::plan::{PlanOptions, PlannedKernel, plan};
use crate::policy::BatchSizePolicy;
use crate::profiler::Profiler;

/// A configuration that is slower than the chosen one by no more than this part nearly was chosen.
const NEAR: f64 = 0.03;

/// The most that repeating may cost, as a part of what all measurements of the kernels cost.
const SHARE: f64 = 0.125;

/// How often a plan may change its mind.
const ROUNDS: usize = 3;

/// Micro-configurations that decide about a plan: by size and algorithm, their times.
type Deciding = BTreeMap<u32, BTreeMap<Algorithm, f64>>;

/// What repeated measurements have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Pairs of kernel and size that were measured again.
    pub repeated: usize,
    /// By how much the two times of the fastest algorithm differed, as a part of the shorter: the median.
    pub median: f64,
    /// The most.
    pub largest: f64,
}

impl Noise {
    /// What differences, of which there may be none, say.
    fn of(mut differences: Vec<f64>) -> Noise {
        differences.sort_by(f64::total_cmp);
        let at = |index: usize| differences.get(index).copied().unwrap_or(0.0);
        Noise {
            repeated: differences.len(),
            median: at(differences.len() / 2),
            largest: at(differences.len().saturating_sub(1)),
        }
    }
}

impl CostTable {
    /// Measures once more what a plan of `kernels` with `options` uses or nearly uses, as far as `may_repeat` says so
    /// of a kernel and size, longest first and an eighth of all measuring at most; nothing if there is no plan. Of two
    /// times of an algorithm the shorter stays.
    ///
    /// # Errors
    /// When the profiler fails or returns an impossible measurement.
    pub fn repeat_for(
        &mut self,
        kernels: &[Kernel],
        options: &PlanOptions,
        profiler: &mut dyn Profiler,
        may_repeat: impl Fn(&KernelId, u32) -> bool,
        mut progress: impl FnMut(Progress<'_>),
    ) -> Result<Noise, ProfileError> {
        let mut repeated: BTreeSet<(KernelId, u32, Algorithm)> = BTreeSet::new();
        let mut differences = Vec::new();
        let ids: BTreeSet<KernelId> = kernels.iter().map(|kernel| kernel.id).collect();
        let mut left_ms = SHARE * ids.iter().map(|id| self.cost_ms(id)).sum::<f64>();
        for _ in 0..ROUNDS {
            let Ok(plan) = plan(kernels, self, options) else { break };
            let mut wanted: Vec<(f64, Wanted<'_>)> = Vec::new();
            let hopes = self.hopes(kernels, options);
            for ((kernel, planned), hopes) in std::iter::zip(kernels, &plan.kernels).zip(hopes) {
                let mut deciding = self.rests_on(planned, options);
                for (size, algorithms) in hopes {
                    deciding.entry(size).or_default().extend(algorithms);
                }
                for (size, mut algorithms) in deciding {
                    algorithms.retain(|algorithm, _| {
                        may_repeat(&kernel.id, size) && repeated.insert((kernel.id, size, algorithm.clone()))
                    });
                    if !algorithms.is_empty() {
                        let cost_ms = algorithms.values().sum();
                        wanted.push((cost_ms, Wanted::some(kernel, size, algorithms.into_keys())));
                    }
                }
            }
            wanted.sort_by(|a, b| b.0.total_cmp(&a.0));
            wanted.retain(|(cost_ms, _)| {
                let affordable = *cost_ms <= left_ms;
                left_ms -= if affordable { *cost_ms } else { 0.0 };
                affordable
            });
            if wanted.is_empty() {
                break;
            }
            let wanted: Vec<Wanted<'_>> = wanted.into_iter().map(|(_, wanted)| wanted).collect();
            let mut measuring = Measuring::new(self, profiler, &mut progress, wanted.len());
            differences.extend(measuring.repeat(&wanted)?);
            measuring.finish();
        }
        Ok(Noise::of(differences))
    }

    /// For each of `kernels` what its configuration would be made of if all times were those that the sizes next to them
    /// promise, where that is less than was measured.
    fn hopes(&self, kernels: &[Kernel], options: &PlanOptions) -> Vec<Deciding> {
        let mut hopeful = self.clone();
        for kernel in largest(kernels).into_values() {
            self.expect(&mut hopeful, &kernel.id);
        }
        let Ok(plan) = plan(kernels, &hopeful, options) else { return vec![Deciding::new(); kernels.len()] };
        let hopes = plan.kernels.iter().map(|planned| {
            let mut hopes = Deciding::new();
            for micro in planned.configuration.runs().iter().map(|run| &run.micro) {
                let rows = self.measurements(&planned.kernel.id, micro.micro_batch).unwrap_or_default();
                let measured = rows.iter().find(|row| row.algorithm == micro.algorithm);
                if let Some(row) = measured.filter(|row| micro.time_ms < (1.0 - NEAR) * row.time_ms) {
                    hopes.entry(row.micro_batch).or_default().insert(row.algorithm.clone(), row.time_ms);
                }
            }
            hopes
        });
        hopes.collect()
    }

    /// Lowers the times that `hopeful` has of a kernel to what the next smaller and larger size of the same algorithm
    /// promise.
    fn expect(&self, hopeful: &mut CostTable, id: &KernelId) {
        let groups = self.sizes(id).into_iter().flat_map(BTreeMap::values);
        let mut series: BTreeMap<&Algorithm, Vec<&Measurement>> = BTreeMap::new();
        for row in groups.flat_map(|group| &group.rows) {
            series.entry(&row.algorithm).or_default().push(row);
        }
        for rows in series.into_values() {
            for (place, row) in rows.iter().enumerate() {
                let below = place.checked_sub(1).map(|below| rows[below]);
                let promised_ms = promised_ms(below, rows.get(place + 1).copied(), row.micro_batch);
                let time_ms = row.time_ms.min(promised_ms).max(row.shared_ms);
                let row = Measurement { time_ms, ..(*row).clone() };
                hopeful.insert_some(*id, row.micro_batch, vec![row]).expect("not longer than measured");
            }
        }
    }

    /// What one call of every measured algorithm at every size of a kernel takes together.
    fn cost_ms(&self, id: &KernelId) -> f64 {
        let groups = self.sizes(id).into_iter().flat_map(BTreeMap::values);
        groups.flat_map(|group| &group.rows).map(|row| row.time_ms).sum()
    }

    /// The micro-configurations whose times decide about a kernel's configuration, by size and algorithm: its own, and
    /// those of the fastest configuration without any of them, if that is nearly as fast.
    fn rests_on(&self, planned: &PlannedKernel, options: &PlanOptions) -> Deciding {
        let mut deciding = Deciding::new();
        let mut add = |configuration: &Configuration| {
            for micro in configuration.runs().iter().map(|run| &run.micro) {
                let of_size = deciding.entry(micro.micro_batch).or_default();
                of_size.insert(micro.algorithm.clone(), micro.time_ms);
            }
        };
        add(&planned.configuration);
        let kernel = &planned.kernel;
        let measured = self.sizes(&kernel.id).into_iter().flatten();
        let policy = options.batch_size_policy;
        let allowed = policy.sizes(kernel.mini_batch);
        let rows = measured
            .filter(|(size, _)| policy == BatchSizePolicy::Adaptive || allowed.binary_search(size).is_ok())
            .flat_map(|(_, group)| &group.rows)
            .filter(|row| options.admits(row));
        let is_used = |row: &&Measurement| {
            let mut used = planned.configuration.runs().iter().map(|run| &run.micro);
            used.any(|micro| micro.micro_batch == row.micro_batch && micro.algorithm == row.algorithm)
        };
        let mut sweep = Sweep::new(rows.filter(|row| !is_used(row)), kernel.mini_batch);
        sweep.raise_limit(planned.available);
        if sweep.time_ms() <= planned.time_ms() * (1.0 + NEAR) {
            sweep.configuration().iter().for_each(add);
        }
        deciding
    }
}

/// What `size` samples take by the measurements of fewer and of more: on the line between them; as long as more, or as
/// long per sample as fewer, where there is only one of the two.
fn promised_ms(below: Option<&Measurement>, above: Option<&Measurement>, size: u32) -> f64 {
    match (below, above) {
        (Some(below), Some(above)) => line(below, above, size, |row| row.time_ms),
        (None, Some(above)) => above.time_ms,
        (Some(below), None) => f64::from(size) * below.time_per_sample_ms(),
        (None, None) => f64::INFINITY,
    }
}

/// The rows of a repeated measurement, each with the shorter of its times, and by which part the times of the fastest of
/// them differ.
pub(crate) fn join(before: &[Measurement], again: &[Measurement]) -> (Vec<Measurement>, f64) {
    let known = |row: &Measurement| before.iter().find(|other| other.algorithm == row.algorithm);
    let shorter = |row: &Measurement| match known(row) {
        Some(earlier) if earlier.time_ms <= row.time_ms => earlier.clone(),
        _ => row.clone(),
    };
    let joined = again.iter().map(shorter).collect();
    let fastest = again.iter().min_by(|a, b| shorter(a).time_ms.total_cmp(&shorter(b).time_ms));
    let difference = fastest.and_then(|row| {
        let earlier = known(row)?;
        let (shorter_ms, longer_ms) = (row.time_ms.min(earlier.time_ms), row.time_ms.max(earlier.time_ms));
        (shorter_ms > 0.0).then(|| longer_ms / shorter_ms - 1.0)
    });
    (joined, difference.unwrap_or(0.0))
}
