//! Whether measurements can be trusted: those that a plan rests on are made again.
//!
//! A busy machine makes calls slower, never faster, and a plan picks what looks fast. So what it picked, and what it
//! nearly picked, is measured a second time; of two times the shorter counts. If that changes the plan, what is new
//! in it is repeated too.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::cost_table::{CostTable, Measuring, Profiler, Progress};
use crate::dp::Sweep;
use crate::error::ProfileError;
use crate::kernel::{Kernel, KernelId};
use crate::micro::Measurement;
use crate::plan::{PlanOptions, PlannedKernel, plan};
use crate::policy::BatchSizePolicy;

/// A configuration that is slower than the chosen one by no more than this part nearly was chosen.
const NEAR: f64 = 0.03;

/// The most that repeating may cost, as a part of what all measurements of the kernels cost.
const SHARE: f64 = 0.125;

/// How often a plan may change its mind.
const ROUNDS: usize = 3;

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
        let mut repeated: BTreeSet<(KernelId, u32)> = BTreeSet::new();
        let mut differences = Vec::new();
        let ids: BTreeSet<KernelId> = kernels.iter().map(|kernel| kernel.id).collect();
        let mut left_ms = SHARE * ids.iter().map(|id| self.cost_ms(id, |_| true)).sum::<f64>();
        for _ in 0..ROUNDS {
            let Ok(plan) = plan(kernels, self, options) else { break };
            let mut wanted: Vec<(&Kernel, u32)> = Vec::new();
            for (kernel, planned) in std::iter::zip(kernels, &plan.kernels) {
                for size in self.rests_on(planned, options) {
                    if may_repeat(&kernel.id, size) && repeated.insert((kernel.id, size)) {
                        wanted.push((kernel, size));
                    }
                }
            }
            let cost_ms = |(kernel, size): &(&Kernel, u32)| self.cost_ms(&kernel.id, |other| other == *size);
            wanted.sort_by(|a, b| cost_ms(b).total_cmp(&cost_ms(a)));
            wanted.retain(|pair| {
                let affordable = cost_ms(pair) <= left_ms;
                left_ms -= if affordable { cost_ms(pair) } else { 0.0 };
                affordable
            });
            if wanted.is_empty() {
                break;
            }
            let mut measuring = Measuring::new(self, profiler, &mut progress, wanted.len());
            for (kernel, size) in wanted {
                differences.push(measuring.repeat(kernel, size)?);
            }
            measuring.finish();
        }
        Ok(Noise::of(differences))
    }

    /// What one call of every algorithm takes, at those sizes of a kernel that `wanted` says.
    fn cost_ms(&self, id: &KernelId, wanted: impl Fn(u32) -> bool) -> f64 {
        let sizes = self.sizes(id).into_iter().flatten().filter(|(size, _)| wanted(**size));
        sizes.flat_map(|(_, rows)| rows).map(|row| row.time_ms).sum()
    }

    /// The sizes whose times decide about a kernel's configuration: its own, and those of the fastest configuration
    /// without any of its micro-configurations, if that is nearly as fast.
    fn rests_on(&self, planned: &PlannedKernel, options: &PlanOptions) -> BTreeSet<u32> {
        let used = || planned.configuration.runs().iter().map(|run| &run.micro);
        let mut sizes: BTreeSet<u32> = used().map(|micro| micro.micro_batch).collect();
        let kernel = &planned.kernel;
        let measured = self.sizes(&kernel.id).into_iter().flatten();
        let policy = options.batch_size_policy;
        let allowed = policy.sizes(kernel.mini_batch);
        let rows = measured
            .filter(|(size, _)| policy == BatchSizePolicy::Adaptive || allowed.binary_search(size).is_ok())
            .flat_map(|(_, rows)| rows)
            .filter(|row| options.admits(row));
        let is_used = |row: &&Measurement| {
            used().any(|micro| micro.micro_batch == row.micro_batch && micro.algorithm == row.algorithm)
        };
        let mut sweep = Sweep::new(rows.filter(|row| !is_used(row)), kernel.mini_batch);
        sweep.raise_limit(planned.available);
        if sweep.time_ms() <= planned.time_ms() * (1.0 + NEAR) {
            let runs = sweep.configuration();
            sizes.extend(runs.iter().flat_map(|other| other.runs()).map(|run| run.micro.micro_batch));
        }
        sizes
    }
}

/// The rows of two measurements of one kernel and size, each with the shorter of its times, and by which part the times
/// of the fastest algorithm differ.
pub(crate) fn join(before: &[Measurement], again: &[Measurement]) -> (Vec<Measurement>, f64) {
    let mut joined = before.to_vec();
    for row in again {
        match joined.iter_mut().find(|other| other.algorithm == row.algorithm) {
            Some(other) if row.time_ms < other.time_ms => *other = row.clone(),
            Some(_) => (),
            None => joined.push(row.clone()),
        }
    }
    let fastest = joined.iter().min_by(|a, b| a.time_ms.total_cmp(&b.time_ms));
    let difference = fastest.map_or(0.0, |fastest| {
        let time_ms = |rows: &[Measurement]| {
            rows.iter()
                .find(|row| row.algorithm == fastest.algorithm)
                .map_or(fastest.time_ms, |row| row.time_ms)
        };
        let longer_ms = time_ms(before).max(time_ms(again));
        if fastest.time_ms > 0.0 { longer_ms / fastest.time_ms - 1.0 } else { 0.0 }
    });
    (joined, difference)
}
