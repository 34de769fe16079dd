//! What there is to choose from: the desirable set of every kernel, identical kernels joined.

use super::dp::desirable_set;
use super::options::{PlanError, PlanOptions};
use crate::model::{
    BatchSizePolicy, Bytes, Configuration, DesirableSet, Kernel, KernelId, Measurement, WorkspacePolicy,
};
use crate::table::CostTable;
use std::collections::{HashMap, hash_map::Entry};
use std::{cmp::Reverse, sync::Arc};

/// The desirable set of every kernel, unlimited: everything that any workspace policy chooses from under any limit.
#[derive(Clone, Debug)]
pub struct Fronts {
    pub(crate) kernels: Vec<Kernel>,
    /// Of every kernel; those with one identity and mini-batch have the same.
    fronts: Vec<Arc<Front>>,
}

/// What one kernel may get.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    /// The desirable set: divided, or undivided where nothing is better.
    pub(crate) set: DesirableSet,
    /// Measurements of the whole mini-batch in one call.
    pub(crate) undivided: Vec<Measurement>,
}

impl Fronts {
    /// The desirable sets of `kernels`. Of `options` only the batch-size policy, accuracy and determinism count.
    ///
    /// # Errors
    /// When a kernel has an empty mini-batch, no admitted algorithm, or lacks a measurement that the policy needs.
    pub fn new(kernels: &[Kernel], table: &CostTable, options: &PlanOptions) -> Result<Self, PlanError> {
        let mut known: HashMap<(&KernelId, u32), Arc<Front>> = HashMap::new();
        let fronts = kernels.iter().map(|kernel| match known.entry((&kernel.id, kernel.mini_batch)) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(new) => Ok(new.insert(Arc::new(Front::new(kernel, table, options)?)).clone()),
        });
        Ok(Self { fronts: fronts.collect::<Result<_, PlanError>>()?, kernels: kernels.to_vec() })
    }

    /// Every kernel with what it may get, in the order given.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = (&Kernel, &Front)> {
        self.kernels.iter().zip(self.fronts.iter().map(Arc::as_ref))
    }

    /// Every kernel with its desirable set, in the order given.
    pub fn iter(&self) -> impl Iterator<Item = (&Kernel, &DesirableSet)> {
        self.fronts().map(|(kernel, front)| (kernel, &front.set))
    }

    /// The smallest limit with a plan, and the kernel that sets it: under WD the one that takes the largest part of the
    /// smallest total. `None` if there are no kernels.
    pub fn smallest_limit(&self, policy: WorkspacePolicy) -> Option<(Bytes, &Kernel)> {
        let needs = self.needs(policy);
        let neediest = first_largest(&needs)?;
        let limit = if policy == WorkspacePolicy::Wd { needs.into_iter().sum() } else { needs[neediest] };
        Some((limit, &self.kernels[neediest]))
    }

    /// The least workspace that each kernel takes, under WD its segment.
    pub(crate) fn needs(&self, policy: WorkspacePolicy) -> Vec<Bytes> {
        let least = self.iter().map(|(_, set)| {
            let workspace = set.first().map(Configuration::workspace).unwrap_or_default();
            if policy == WorkspacePolicy::Wd { workspace.aligned() } else { workspace }
        });
        least.collect()
    }
}

/// The index of the largest value, of equals the first.
pub(crate) fn first_largest(values: &[Bytes]) -> Option<usize> {
    (0..values.len()).max_by_key(|&index| (values[index], Reverse(index)))
}

impl Front {
    fn new(kernel: &Kernel, table: &CostTable, options: &PlanOptions) -> Result<Self, PlanError> {
        let micros = candidates(kernel, table, options)?;
        let set = desirable_set(micros.iter().copied(), kernel.mini_batch, Bytes::MAX);
        if set.is_empty() {
            let (policy, restrictions) = (options.batch_size_policy, options.restrictions());
            let samples = format!("mini-batch {} under the {policy} policy{restrictions}", kernel.mini_batch);
            return Err(PlanError::Refused(format!("{kernel} has no algorithm that covers {samples}")));
        }
        let undivided = micros.into_iter().filter(|micro| micro.micro_batch == kernel.mini_batch);
        Ok(Self { set, undivided: undivided.cloned().collect() })
    }

    /// The fastest undivided algorithm within `limit`; of equally fast ones the one with less workspace.
    pub(crate) fn undivided_within(&self, limit: Bytes) -> Option<&Measurement> {
        self.undivided.iter().filter(|micro| micro.workspace <= limit).min_by(|a, b| {
            let by_time = a.time_ms.total_cmp(&b.time_ms);
            by_time.then(a.workspace.cmp(&b.workspace)).then(a.algorithm.cmp(&b.algorithm))
        })
    }
}

/// What a kernel's configurations may be made of: measurements at the policy's sizes that the options admit. An error
/// if the mini-batch is empty, or one of the sizes was not measured.
pub(crate) fn candidates<'t>(
    kernel: &Kernel,
    table: &'t CostTable,
    options: &PlanOptions,
) -> Result<Vec<&'t Measurement>, PlanError> {
    if kernel.mini_batch == 0 {
        return Err(PlanError::Refused(format!("{kernel} has an empty mini-batch")));
    }
    let (policy, measured, mut micros) = (options.batch_size_policy, table.sizes(&kernel.id), Vec::new());
    for size in policy.sizes(kernel.mini_batch) {
        let group = measured.get(&size).ok_or_else(|| {
            let sizes = measured_sizes(measured.keys().copied().collect());
            PlanError::NotMeasured(format!(
                "{kernel} was not measured at micro-batch {size}, which the {policy} policy needs for mini-batch {}; \
                 {sizes}",
                kernel.mini_batch
            ))
        })?;
        micros.extend(&group.rows);
    }
    if policy == BatchSizePolicy::Adaptive {
        micros = measured.range(1..=kernel.mini_batch).flat_map(|(_, group)| &group.rows).collect();
    }
    micros.retain(|row| options.admits(row));
    Ok(micros)
}

/// What a cost table has of a kernel, as the end of a sentence.
fn measured_sizes(sizes: Vec<u32>) -> String {
    match &sizes[..] {
        [] => "the kernel was not measured at all".to_owned(),
        [first, second, third, .., last] if sizes.len() > 12 => {
            format!("{} sizes were measured: {first}, {second}, {third}, ..., {last}", sizes.len())
        }
        sizes => format!("measured were {}", sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}
