//! The `adaptive` batch-size policy: of all sizes it measures those that the plan is likely to use.
//!
//! It begins with the sizes of `powerOfTwo` and then asks two questions in turn. Which sizes would the plan use if all
//! costs lay on straight lines between the measured ones? As long as such a plan promises something, its sizes are
//! measured. Then: which would it use if every cost were as low as it can be, time and workspace growing with the
//! number of samples and time per sample falling? That plan is a lower bound of `all`'s; as long as it is too far below
//! the measured one, the sizes that make it so are measured.

use super::coverage::measured_pairs;
use super::estimate::{Estimate, plan};
use super::measuring::{Measuring, ProfileError};
use crate::choose::{Plan, PlanOptions, PlannedKernel};
use crate::model::{BatchSizePolicy, Kernel, Measurement, WorkspacePolicy};
use crate::table::CostTable;
use std::collections::BTreeSet;

/// The part of `all`'s measurements that may be spent, unless `powerOfTwo` already needs more.
const SHARE: f64 = 0.15;

/// What a plan on likely costs must promise to save, as a part of its time, to be followed.
const PROMISE: f64 = 0.001;

/// How far above its lower bound, as a part of that, a plan may stay.
const GAP: f64 = 0.01;

/// Measures what a plan of `kernels` with `options` is likely to use.
pub(crate) fn measure_likely(
    measuring: &mut Measuring<'_>,
    kernels: &[Kernel],
    options: &PlanOptions,
) -> Result<(), ProfileError> {
    let start = measuring.table.missing(kernels, BatchSizePolicy::Adaptive);
    let (known, all) = measured_pairs(measuring.table, kernels, BatchSizePolicy::All);
    let affordable = ((SHARE * all as f64) as usize).saturating_sub(known);
    measuring.total = affordable.max(start.len());
    measuring.measure(&start)?;
    while measuring.left() > 0 {
        let mut wanted = wanted(measuring.table, kernels, options);
        wanted.truncate(measuring.left());
        if wanted.is_empty() {
            break;
        }
        measuring.measure(&wanted)?;
    }
    Ok(())
}

/// The sizes to measure next, the most useful first, to see whether a promise holds; none if the plan is good enough.
fn wanted<'k>(table: &CostTable, kernels: &'k [Kernel], options: &PlanOptions) -> Vec<(&'k Kernel, u32)> {
    let current = plan(kernels, table, options).ok();
    let all = PlanOptions { batch_size_policy: BatchSizePolicy::All, ..options.clone() };
    let [likely, least] =
        [Estimate::Likely, Estimate::Least].map(|how| how.complete(table, kernels, options));
    for (estimates, tolerance) in [(&likely, PROMISE), (&least, GAP)] {
        let Ok(promised) = plan(kernels, estimates, &all) else { continue };
        let worthwhile_ms = tolerance * promised.time_ms;
        if current.as_ref().is_some_and(|now| now.time_ms - promised.time_ms <= worthwhile_ms) {
            continue;
        }
        let (mut seen, mut wanted) = (BTreeSet::new(), Vec::new());
        for place in worthwhile(&promised, current.as_ref(), worthwhile_ms) {
            let (kernel, planned) = (&kernels[place], &promised.kernels[place]);
            let micros = planned.configuration.runs().iter().map(|run| &run.micro);
            for micro in micros.filter(|one| table.measurements(&kernel.id, one.micro_batch).is_none()) {
                let size = size_for([table, &likely], options, planned, micro);
                if seen.insert((kernel.id, size)) {
                    wanted.push((kernel, size));
                }
            }
        }
        if !wanted.is_empty() {
            return wanted;
        }
    }
    Vec::new()
}

/// The size that tells most about an estimate: its own, or where its `likely` workspace is in doubt one that settles more.
fn size_for(
    [table, likely]: [&CostTable; 2],
    options: &PlanOptions,
    planned: &PlannedKernel,
    micro: &Measurement,
) -> u32 {
    let (id, size) = (&planned.kernel.id, micro.micro_batch);
    let (below, above) = table.gap(id, size);
    let workspace = |size: u32| {
        let rows = likely.measurements(id, size).unwrap_or_default();
        rows.iter().find(|row| row.algorithm == micro.algorithm).map(|row| row.workspace)
    };
    let fits = |&size: &u32| workspace(size).is_some_and(|workspace| workspace <= planned.available);
    if fits(&size) {
        size
    } else if options.workspace_policy != WorkspacePolicy::Wd && workspace(size).is_some() {
        // Where the workspace likely reaches the limit: a size on either side settles the rest.
        (below + 1..above).rev().find(fits).unwrap_or(below + 1)
    } else {
        below + (above - below) / 2
    }
}

/// The kernels that are promised to become faster, by their places, the most first, without the last that together are
/// not worth it. Under WD all: one may also lose, to the benefit of others.
fn worthwhile(promised: &Plan, current: Option<&Plan>, worthwhile_ms: f64) -> Vec<usize> {
    let now_ms = |kernel: usize| current.map_or(f64::INFINITY, |plan| plan.kernels[kernel].time_ms());
    let saved_ms = |&kernel: &usize| now_ms(kernel) - promised.kernels[kernel].time_ms();
    let mut order: Vec<usize> = (0..promised.kernels.len()).collect();
    order.sort_by(|a, b| saved_ms(b).total_cmp(&saved_ms(a)));
    if promised.options.workspace_policy != WorkspacePolicy::Wd {
        let mut rest_ms: f64 = order.iter().map(saved_ms).sum();
        order.retain(|kernel| {
            let worthwhile = rest_ms > worthwhile_ms;
            rest_ms -= saved_ms(kernel);
            worthwhile
        });
    }
    order
}
