//! Whether measurements can be trusted: those that a plan rests on are made again.
//!
//! A busy machine makes calls slower, never faster, and a plan picks what looks fast. So what it picked, and what it
//! nearly picked, is measured a second time; of two times the shorter counts. So is what it would pick if every size
//! were as fast as the sizes around it say, as that one may have been disturbed. What is new in the plan then, too.

use super::estimate::{largest, line, plan};
use super::measuring::{Measuring, ProfileError, Progress, Wanted};
use super::profiler::{Profiler, Request};
use crate::choose::{PlanOptions, PlannedKernel, candidates, desirable_set};
use crate::model::{Algorithm, Kernel, KernelId, Measurement};
use crate::table::CostTable;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A configuration that is slower than the chosen one by no more than this part nearly was chosen.
const NEAR: f64 = 0.03;

/// The most that repeating may cost, as a part of what all measurements of the kernels cost.
const SHARE: f64 = 0.125;

/// How often the plan may change.
const ROUNDS: usize = 3;

/// Micro-configurations that decide about a plan: by size and algorithm, their times.
type Decisive = BTreeMap<(u32, Algorithm), f64>;

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

/// Measures once more what a plan of `kernels` with `options` uses or nearly uses, as far as `may_repeat` says so of a
/// kernel and size, longest first and an eighth of all measuring at most; nothing if there is no plan. Of two times of
/// an algorithm the shorter stays.
///
/// # Errors
/// When the profiler fails or returns an impossible measurement.
pub fn repeat(
    table: &mut CostTable,
    kernels: &[Kernel],
    options: &PlanOptions,
    profiler: &mut dyn Profiler,
    may_repeat: impl Fn(&KernelId, u32) -> bool,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Noise, ProfileError> {
    let mut repeated: BTreeSet<(KernelId, u32, Algorithm)> = BTreeSet::new();
    let mut is_open = |id: &KernelId, size: u32, algorithm: &Algorithm| {
        may_repeat(id, size) && repeated.insert((*id, size, algorithm.clone()))
    };
    let mut differences = Vec::new();
    let ids: BTreeSet<KernelId> = kernels.iter().map(|kernel| kernel.id).collect();
    // One call of every measured algorithm at every size.
    let all = ids.iter().flat_map(|id| table.series(id).into_values().flatten());
    let mut left_ms = SHARE * all.map(|row| row.time_ms).sum::<f64>();
    for _ in 0..ROUNDS {
        let wanted = affordable(wanted(table, kernels, options, &mut is_open), &mut left_ms);
        if wanted.is_empty() {
            break;
        }
        let total = wanted.len();
        let mut measuring = Measuring { table, profiler, progress: &mut progress, done: 0, total };
        measuring.ask(&wanted, |table, Request { kernel, micro_batch, .. }, again| {
            let before = table.measurements(kernel, *micro_batch).unwrap_or_default();
            let (joined, difference) = join(before, &again);
            differences.push(difference);
            Ok(table.insert_some(*kernel, *micro_batch, joined)?)
        })?;
    }
    differences.sort_by(f64::total_cmp);
    let (repeated, at) = (differences.len(), |index: usize| differences.get(index).copied().unwrap_or(0.0));
    Ok(Noise { repeated, median: at(repeated / 2), largest: at(repeated.saturating_sub(1)) })
}

/// What decides about the plan and `is_open`, with what measuring it costs.
fn wanted<'k>(
    table: &CostTable,
    kernels: &'k [Kernel],
    options: &PlanOptions,
    is_open: &mut dyn FnMut(&KernelId, u32, &Algorithm) -> bool,
) -> Vec<(f64, Wanted<'k>)> {
    let Ok(plan) = plan(kernels, table, options) else { return Vec::new() };
    let mut wanted = Vec::new();
    let promising = promising(table, kernels, options);
    for ((kernel, planned), promising) in std::iter::zip(kernels, &plan.kernels).zip(promising) {
        let mut decisive = rests_on(table, planned, options);
        decisive.extend(promising);
        decisive.retain(|(size, algorithm), _| is_open(&kernel.id, *size, algorithm));
        let decisive: Vec<((u32, Algorithm), f64)> = decisive.into_iter().collect();
        for of_size in decisive.chunk_by(|a, b| a.0.0 == b.0.0) {
            let cost_ms = of_size.iter().map(|(_, time_ms)| time_ms).sum();
            let algorithms = of_size.iter().map(|((_, algorithm), _)| algorithm.clone()).collect();
            wanted.push((cost_ms, (kernel, Request::of(kernel, of_size[0].0.0, Some(algorithms)))));
        }
    }
    wanted
}

/// The longest of `wanted` that `left_ms`, which falls, allows; those of one kernel together, the largest first.
fn affordable<'k>(mut wanted: Vec<(f64, Wanted<'k>)>, left_ms: &mut f64) -> Vec<Wanted<'k>> {
    wanted.sort_by(|a, b| b.0.total_cmp(&a.0));
    wanted.retain(|(cost_ms, _)| {
        let affordable = *cost_ms <= *left_ms;
        *left_ms -= if affordable { *cost_ms } else { 0.0 };
        affordable
    });
    let mut wanted: Vec<Wanted<'_>> = wanted.into_iter().map(|(_, wanted)| wanted).collect();
    wanted.sort_by_key(|(_, request)| (request.kernel, Reverse(request.micro_batch)));
    wanted
}

/// For each of `kernels` what its configuration would be made of if all times were those that the sizes next to them
/// promise, where that is less than was measured.
fn promising(table: &CostTable, kernels: &[Kernel], options: &PlanOptions) -> Vec<Decisive> {
    let mut promised = table.clone();
    largest(kernels).into_keys().for_each(|id| promise(table, &mut promised, &id));
    let Ok(plan) = plan(kernels, &promised, options) else { return vec![Decisive::new(); kernels.len()] };
    let promising = plan.kernels.iter().map(|planned| {
        let micros = planned.configuration.runs().iter().map(|run| &run.micro);
        let slower = micros.filter_map(|micro| {
            let mut rows = table.measurements(&planned.kernel.id, micro.micro_batch)?.iter();
            let row = rows.find(|row| row.algorithm == micro.algorithm)?;
            (micro.time_ms < (1.0 - NEAR) * row.time_ms).then(|| time_of(row))
        });
        slower.collect()
    });
    promising.collect()
}

/// Lowers the times that `promised` has of a kernel to what the next smaller and larger size of the same algorithm in
/// `table` promise: those on the line between them; as long as the larger, or as long per sample as the smaller, where
/// there is only one of the two.
fn promise(table: &CostTable, promised: &mut CostTable, id: &KernelId) {
    for rows in table.series(id).into_values() {
        for (place, row) in rows.iter().enumerate() {
            let below = place.checked_sub(1).map(|below| rows[below]);
            let promised_ms = match (below, rows.get(place + 1)) {
                (Some(below), Some(above)) => line(below, above, row.micro_batch, |row| row.time_ms),
                (None, Some(above)) => above.time_ms,
                (Some(below), None) => f64::from(row.micro_batch) * below.time_per_sample_ms(),
                (None, None) => f64::INFINITY,
            };
            let time_ms = row.time_ms.min(promised_ms).max(row.shared_ms);
            let row = Measurement { time_ms, ..(*row).clone() };
            promised.insert_some(*id, row.micro_batch, vec![row]).expect("not longer than measured");
        }
    }
}

/// The micro-configurations whose times decide about a kernel's configuration: its own, and those of the fastest
/// configuration without any of them, if that is nearly as fast.
fn rests_on(table: &CostTable, planned: &PlannedKernel, options: &PlanOptions) -> Decisive {
    let runs = planned.configuration.runs().iter();
    let mut decisive: Decisive = runs.map(|run| time_of(&run.micro)).collect();
    let Ok(unused) = candidates(&planned.kernel, table, options) else { return decisive };
    let unused = unused.into_iter().filter(|row| !decisive.contains_key(&time_of(row).0));
    let others = desirable_set(unused, planned.kernel.mini_batch, planned.available);
    let fastest = others.last().filter(|other| other.time_ms() <= planned.time_ms() * (1.0 + NEAR));
    let fastest = fastest.into_iter().flat_map(|fastest| fastest.runs());
    decisive.extend(fastest.map(|run| time_of(&run.micro)));
    decisive
}

fn time_of(row: &Measurement) -> ((u32, Algorithm), f64) {
    ((row.micro_batch, row.algorithm.clone()), row.time_ms)
}

/// The rows of a repeated measurement, each with the shorter time, and by which part those of the fastest differ.
fn join(before: &[Measurement], again: &[Measurement]) -> (Vec<Measurement>, f64) {
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
